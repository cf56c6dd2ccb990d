"""``rljob operator`` as a process, started again whenever it ends, as a Deployment would."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

AGAIN_SECONDS = 1.0


class OperatorProgram:
    """For the jobs of one namespace."""

    def __init__(self, kubeconfig: Path, namespace: str, log_file: Path, *options: str) -> None:
        self._log_file, self._process = log_file, None
        self._command = [
            sys.executable, "-c", "from rljob_operator.__main__ import main; main()", "operator", f"--namespace={namespace}",
            f"--lease-namespace={namespace}", "--image=rl:1", "--plain-logs", "--port=0",
            f"--kubeconfig={kubeconfig}", *options,
        ]  # fmt: skip
        self.ends: list[int] = []
        """With which codes it has ended."""

    def log(self) -> str:
        """All that it has said, in all its lives."""
        return self._log_file.read_text() if self._log_file.exists() else ""

    async def keep_running(self) -> None:
        """Until cancelled."""
        while True:
            with self._log_file.open("ab") as output:
                process = await asyncio.create_subprocess_exec(*self._command, stdout=output, stderr=subprocess.STDOUT)
            try:
                self.ends.append(await process.wait())
            except asyncio.CancelledError:
                process.kill()
                await process.wait()
                raise
            await asyncio.sleep(AGAIN_SECONDS)


@asynccontextmanager
async def operator_program(
    kubeconfig: Path, namespace: str, log_file: Path, *options: str
) -> AsyncIterator[OperatorProgram]:
    """One at work, with more options of the command line."""
    program = OperatorProgram(kubeconfig, namespace, log_file, *options)
    running = asyncio.ensure_future(program.keep_running())
    try:
        yield program
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
