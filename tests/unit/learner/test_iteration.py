"""Which actors play for an iteration, and which unrolls are too old: bookkeeping, with a clock that a test moves."""

from dataclasses import dataclass, field

import pytest
from rljob.learner.unroll_order import MOST_UPDATES, Iterations, LagLimit

ENVS = 16


@dataclass
class World:
    """A queue of batches of ``batch_size`` unrolls and actors of 16 environments, each known by one letter."""

    lag: int
    batch_size: int = 48
    version: int = 1
    waiting: int = 0
    now: float = 0.0
    outstanding: dict[bytes, int] = field(default_factory=lambda: {b"a": 0, b"b": 0, b"c": 0})

    def __post_init__(self) -> None:
        self.iterations = Iterations(
            self.lag, self.batch_size, lambda: self.version, lambda: self.waiting, lambda: self.now
        )

    def ask(self, turn: int = 0) -> str:
        """Who is asked now; all that is asked for is on the way."""
        wanted = {peer: ENVS - count for peer, count in self.outstanding.items()}
        grants = self.iterations.share(wanted, self.outstanding, turn)
        for peer, count in grants.items():
            assert count == wanted[peer]
            self.outstanding[peer] += count
        return "".join(sorted(peer.decode() for peer in grants))

    def asked_after(self, *seconds: float) -> list[str]:
        """Who is asked after each of these times, one after the other."""
        asked = []
        for each in seconds:
            self.now += each
            asked.append(self.ask())
        return asked

    def come(self, peers: str, after: float = 0.0) -> None:
        """The unrolls of these have come, so many seconds later."""
        self.now += after
        for peer in peers.encode():
            self.waiting += self.outstanding[bytes([peer])]
            self.outstanding[bytes([peer])] = 0

    def assemble(self, published: int = 0) -> None:
        """A batch is made; the learner publishes so many versions."""
        assert self.waiting >= self.batch_size
        self.waiting -= self.batch_size
        self.iterations.assembled()
        self.version += published


def test_without_lag_all_wait_for_the_next_weights() -> None:
    world = World(lag=0)
    assert (world.ask(), world.iterations.least_version) == ("abc", 1)
    world.come("abc")
    world.assemble()
    assert (world.ask(), world.iterations.least_version) == ("", 2)
    world.version = 2
    assert world.ask() == "abc"


def test_with_a_lag_of_one_they_are_one_iteration_ahead_and_no_more() -> None:
    world = World(lag=1)
    for _ in range(2):  # being learned from; the next
        assert world.ask() == "abc"
        world.come("ab")
        assert world.ask() == "", "each is asked once"
        world.come("c")
        world.assemble()
    assert (world.ask(), world.iterations.least_version) == ("", 2), "the one after that would be too old"
    world.version = 2
    assert (world.ask(), world.iterations.least_version) == ("abc", 2)


@pytest.mark.parametrize("lag", [0, 1])
def test_whoever_is_gone_is_not_waited_for_longer_than_an_unroll_takes(lag: int) -> None:
    world = World(lag)
    for _ in range(3):
        assert world.ask() == "abc"
        world.come("abc", after=1.0)
        world.assemble(published=1)
    assert world.ask() == "abc"
    world.come("ab", after=1.0)  # c has died
    assert world.asked_after(0.0, 0.2, 0.1) == ["", "", "a"], "what is missing fits into one"
    world.come("a", after=1.0)
    world.assemble()


def test_an_unroll_that_was_lost_in_the_first_iteration_is_played_again() -> None:
    """An environment failed, so its credit stays where it is: an actor begins with credits for all of its environments alone."""
    world = World(lag=1, batch_size=ENVS, outstanding={b"a": 0})
    for _ in range(3):  # and again with each that is asked for
        assert world.ask() == "a"
        world.now += 1.0
        world.outstanding[b"a"], world.waiting = 1, 15
        assert world.asked_after(0.0, 0.2, 0.1) == ["", "", "a"]
        world.outstanding[b"a"], world.waiting = 1, 30
        world.assemble(published=1)
        world.now += 10.0
        world.waiting = 0


def test_one_that_joins_is_asked_with_the_next_iteration_at_the_latest() -> None:
    world = World(lag=1)
    world.ask()
    world.outstanding[b"d"] = 0
    assert world.ask() == ""
    world.come("abc")
    world.assemble()
    assert "d" in world.ask(turn=3)


def test_an_iteration_of_several_unrolls_of_each_environment() -> None:
    world = World(lag=1, batch_size=96)
    for asked, come in (("abc", "a"), ("a", "ab"), ("ab", "")):
        assert world.ask() == asked
        world.come(come)


def test_after_going_back_to_earlier_weights_it_begins_with_those() -> None:
    world = World(lag=1, version=9)
    world.ask()
    world.come("abc")
    world.assemble()
    assert world.iterations.next == 10
    world.version = 4
    world.iterations.begin_anew()
    assert (world.iterations.next, world.iterations.least_version) == (4, 3)


def test_before_the_first_weights_whatever_comes_is_good() -> None:
    world = World(lag=0, version=0)
    assert (world.iterations.least_version, world.ask()) == (0, "abc")


def test_it_follows_the_way_that_is_measured_up_to_the_most_unless_the_user_wrote_it() -> None:
    limit, written = LagLimit(50, adapts=True), LagLimit(50, adapts=False)
    assert (limit.updates, limit.arrival_age_updates) == (50, None)
    for age, most in ((10, 60), (100, 150), (10_000, MOST_UPDATES)):
        for _ in range(64):
            limit.arrived(age)
            written.arrived(age)
        assert (limit.updates, written.updates) == (most, 50)
    assert LagLimit(5000, adapts=True).updates == 5000, "what a full queue needs is never cut"


def test_more_than_a_tenth_of_the_last_minute_is_said_with_what_to_change() -> None:
    limit = LagLimit(50, adapts=False)
    limit.arrived(70)
    for second in range(0, 60, 5):
        limit.count(second, 9 * second, float(second))
    assert limit.in_words() == "", "a tenth"
    for second in range(60, 180, 5):
        limit.count(9 * second, second, float(second))
    assert limit.in_words().startswith("90% of the last minute's unrolls were too old")
    assert "arrive up to 70 updates old, and 50 are allowed" in limit.in_words()
    assert "unrollQueue.maxPolicyLagUpdates" in limit.in_words()
    for second in range(180, 300, 5):
        limit.count(9 * 180, 100 * second, float(second))
    assert limit.in_words() == ""
