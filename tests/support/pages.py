"""Pages as a browser takes them."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "line", "path", "circle", "rect"}


class Page(HTMLParser):
    """Checks that a page stands alone (tags match, no script, nothing is loaded) and gathers its tags, words and labels."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.labels: list[str] = []
        self.feed(page)
        self.close()
        assert (self.open, "script" in self.tags) == ([], False)
        self.text = "".join(self.words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.labels += [value or "" for name, value in attrs if name == "aria-label"]
        loading = ("src", "href", "xlink:href", "data")
        assert not [name for name, _ in attrs if name.startswith("on") or name in loading], "the page must stand alone"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
