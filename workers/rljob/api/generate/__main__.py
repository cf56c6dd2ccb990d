"""Write the CRD, the chart's copy of it and docs/api-reference.md below the present folder."""

from rljob.api.generate.files import generated


def main() -> None:
    """Write the generated files."""
    for path, content in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        print(f"{path}: {len(content.encode()):,} bytes")


if __name__ == "__main__":
    main()
