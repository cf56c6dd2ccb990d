"""The tree of an earlier commit as a release of its own, for the test of an upgrade.

    python3 tests/e2e/earlier_release.py FOLDER

A field that the test's job writes is renamed in that tree, in its types, its CRD and its examples alike: seen from today's
release it is a field that was removed since and one that was added, whatever else differs.

Its images have the dependencies of today's `constraints.txt`, so that they share all layers below rljob's own with today's: what
is tried is a change of rljob and no change of what it stands on.

Exit code 3: the repository does not have the commit, as a shallow clone. Nothing but Python's own library and git is needed.
"""

import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMIT = "8747554c5686354d6b4aad57e87549d3eeafcf53"
"""The last commit with the manifest of before the first release. To be moved on to a tag once there are releases."""
RENAMED = {
    "ttlSecondsAfterFinished": "secondsKeptAfterFinished",
    "ttl_seconds_after_finished": "seconds_kept_after_finished",
}
"""Today's name -> the name in the earlier release."""
NO_COMMIT = 3


def write(folder: Path) -> bool:
    """The earlier release's tree in ``folder``; False where the repository does not have its commit."""
    ended = subprocess.run(["git", "-C", str(ROOT), "archive", COMMIT], capture_output=True, check=False)
    if ended.returncode:
        return False
    with tarfile.open(fileobj=io.BytesIO(ended.stdout)) as archive:
        archive.extractall(folder, filter="data")
    shutil.copyfile(ROOT / "constraints.txt", folder / "constraints.txt")
    pattern = re.compile(rf"\b({'|'.join(RENAMED)})\b")
    for path in folder.rglob("*"):
        if path.suffix in (".py", ".yaml", ".json", ".tpl"):
            path.write_text(pattern.sub(lambda found: RENAMED[found[0]], path.read_text()))
    return True


if __name__ == "__main__":
    if not write(Path(sys.argv[1])):
        print(f"the repository does not have commit {COMMIT}: a shallow clone, fetch its history", file=sys.stderr)
        sys.exit(NO_COMMIT)
