"""What counts as an answer of a process, over real sockets: never garbage, never zeros, never a controller that waits."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from rljob_operator.local.substrate import MemberPolls
from rljob_operator.polls.poll import Alive, LearnerPoll as Target, Poll, Rhythm, Silence
from rljob_operator.polls.reach import Direct, NoAnswer

from tests.support.waiting import until
from tests.unit.operator.kube.test_learner_poll import serving


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://127.0.0.1:99999999", "nonsense", ""])
async def test_an_address_that_nobody_has_is_no_answer(url: str) -> None:
    with pytest.raises(NoAnswer, match=r"its status can't be read: ."):
        await Direct(30.0).read(url, "status")


@pytest.mark.parametrize("answer", [b"", b"hello", b"HTTP/1.0", b"HTTP/1.0 ok\r\n\r\n", b"\xff" * 100])
async def test_what_is_no_http_is_no_answer(answer: bytes) -> None:
    async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(say, "127.0.0.1", 0) as server:
        with pytest.raises(NoAnswer, match="its healthz can't be read"):
            await Direct().health(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")


@pytest.fixture
def polls() -> Iterator[MemberPolls]:
    polls = MemberPolls(status=Rhythm(0.02, 0.02), reach=Direct(600.0))
    yield polls
    polls.close()


async def test_the_controller_never_waits_and_knows_why_there_is_nothing(polls: MemberPolls) -> None:
    async with serving() as learner:
        assert polls.answer.status is None
        learner.body = b'{"updates": 7}'
        before = time.time()
        polls.watch([], Target("a", learner.url))
        await until(lambda: polls.answer.status is not None)
        status = polls.answer.status
        assert (status.updates, polls.answer.missing) == (7, "")
        assert before <= status.taken_seconds <= time.time()
        learner.body = b"nonsense"
        await until(lambda: polls.answer.missing == "learner: its status is no JSON")
        learner.delay_seconds, asked = 3600.0, learner.asked
        await until(lambda: learner.asked > asked)
        held = polls.answer
        assert held.status.updates == 7
        for _ in range(100):
            polls.watch([], Target("a", learner.url))
            assert polls.answer is held, "no look waits for an answer that is held back"


async def test_a_wish_for_a_checkpoint_is_passed_on_once_to_each_life_of_the_learner(polls: MemberPolls) -> None:
    wish = ({"sinceUnix": 12.5}, "Bearer secret")
    async with serving() as one, serving() as other:
        for life, learner in (("a", one), ("b", other)):
            polls.watch([], Target(life, learner.url, "secret"), 12.5)
            await until(lambda: bool(learner.wishes))  # noqa: B023 - it is awaited here
        polls.watch([], Target("b", other.url, "secret"))
        asked = other.asked
        await until(lambda: other.asked > asked + 3)
        assert (one.wishes, other.wishes) == ([wish], [wish])


async def test_time_in_which_nobody_was_there_to_hear_is_no_silence() -> None:
    """As where the machine slept between two questions, or this process stood still during one."""
    moments, found = iter([0.0, 100.0, 130.0, 130.5, 131.0, 131.5]), list[Silence | None]()

    class Absent(Direct):
        async def health(self, url: str) -> tuple[int, str]:
            raise NoAnswer("nothing is there")

    def note(key: str) -> None:
        found.append(poll.silence(key, "a"))

    poll: Poll[str] = Poll(note, Absent(), rhythm=Rhythm(0.01, 0.01), steady=lambda: next(moments, 200.0))
    poll.follow("", [Alive("a", "")])
    await until(lambda: len(found) >= 3)
    await poll.close()
    assert [each.heard_seconds for each in found[:3]] == [2.0, 5.0, 6.0]
