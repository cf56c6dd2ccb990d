"""A candidate in a process of its own, which a test can kill: writes `leads` when it does, and works for ever."""

import asyncio
import sys

from rljob_operator.kube.apiserver.access import load_access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.process.lease import Elector


async def main(kubeconfig: str, namespace: str, identity: str) -> None:
    async def connect() -> Client:
        return Client(await load_access(kubeconfig))

    async def work() -> None:
        print("leads", flush=True)
        await asyncio.Event().wait()

    await Elector(connect, namespace, "operator", identity).lead(work)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
