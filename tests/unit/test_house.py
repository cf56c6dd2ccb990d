"""The house grows only where its table in docs/architecture.md says so."""

from benchmarks.house import ROOT, counted, here


def test_the_house_is_no_larger_than_its_table_says() -> None:
    section = (ROOT / "docs" / "architecture.md").read_text().split("## How large it is\n", 1)[1].split("\n#", 1)[0]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in section.splitlines() if line.startswith("|")]
    most = {name: int(number.replace(",", "")) for name, number, _ in rows[2:]}
    found = counted(here())
    assert found.keys() == most.keys()
    assert {name: number for name, number in found.items() if number > most[name]} == {}, "raise it, and say why"
