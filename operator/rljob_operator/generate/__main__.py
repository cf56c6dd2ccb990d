"""Write what is made from the controller's code and of the chart below the present folder."""

from pathlib import Path

from rljob_operator.generate.files import CHART, OF_THE_CHART, MissingProgram, generated


def main() -> None:
    """Write the generated files; those that need a program which is not there stay as they are, and are named."""
    for path, content in generated(Path()).items():
        _write(path, content)
    for path, make in OF_THE_CHART.items():
        try:
            _write(path, make(CHART))
        except MissingProgram as missing:
            print(f"{path}: not made anew, because {missing} is not on the PATH")


def _write(path: Path, content: str) -> None:
    path.write_text(content)
    print(f"{path}: {len(content.encode()):,} bytes")


if __name__ == "__main__":
    main()
