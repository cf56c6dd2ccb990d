"""What docs/plugins.md has its reader put into images of one's own, as two folders to be built.

    python3 -m tests.e2e.own_images FOLDER WORKER_IMAGE

``FOLDER/files`` has files in /opt/plugins, ``FOLDER/package`` a package that pip installs. Nothing but Python's own library is
needed.
"""

import sys
from pathlib import Path

from tests.support.documents import block, write_environment, write_example, write_package

WORKER = "registry.example.com/team/rljob-worker:0.1.0"


def write(folder: Path, worker_image: str) -> None:
    """Both folders, with the page's Dockerfiles from ``worker_image``."""
    files, package = folder / "files", folder / "package"
    for each in (files, package / "corridor"):
        each.mkdir(parents=True)
    write_example(files)
    write_environment(files)
    write_package(package / "corridor")
    for where, mark in ((files, "/opt/plugins/"), (package, "RUN pip install /tmp/corridor")):
        dockerfile = block("Dockerfile", mark)
        if WORKER not in dockerfile:
            raise ValueError(f"docs/plugins.md: the Dockerfile is not from {WORKER}:\n{dockerfile}")
        (where / "Dockerfile").write_text(dockerfile.replace(WORKER, worker_image))


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2])
