"""The replay service: one thread that owns the sockets and the table, beside one that writes the log."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import redis
import zmq

from rljob.experience.ring import Slots
from rljob.ingest.roster import EPISODES_SHOWN, Counted, Roster
from rljob.ingest.service import Ingest
from rljob.ingest.shard_status import ShardStatus
from rljob.ingest.table import SlotLeases, read_segment
from rljob.replay.chunk_log import ChunkLog, DamagedLog, LogState
from rljob.replay.config import ReplayConfig
from rljob.replay.durability import Durability
from rljob.replay.limiter import SamplesPerInsertLimiter
from rljob.replay.log_writer import LogWriter
from rljob.replay.redis_client import connect, in_words
from rljob.replay.restore import GENERATION_JUMP, pack_weights, patiently, restore_chunks
from rljob.replay.sampling import InTurns, Sampling
from rljob.replay.selectors import Prioritized
from rljob.replay.service_status import StatusClock, describe
from rljob.replay.table import ReplayTable
from rljob.strict_json import dumps
from rljob.telemetry.clock import StageClock
from rljob.wire import Server

log = logging.getLogger(__name__)

STAGES = ("poll", "ingest", "sample", "log", "status")
_IDLE_MILLISECONDS = 50
_LAGGING_MILLISECONDS = 1
_STATUS_SECONDS = 0.5
_HOUSEKEEPING_SECONDS = 1.0
_REDIS_PATIENCE_SECONDS = 15.0


class ReplayService:
    """One shard. Binds its sockets when built; ``run`` serves until told to stop. Raises what binding raises.

    ``status`` is the last published status, replaced as a whole, so that any thread may read it.
    ``on_turn`` is called every turn of the loop, at least some twenty times a second.
    """

    def __init__(self, config: ReplayConfig) -> None:
        self.config = config
        self.service = uuid.uuid4().hex
        layout = config.layout
        slots = Slots(layout, config.capacity.chunks(layout))
        self.table = ReplayTable(
            slots,
            Prioritized(slots.capacity_steps, config.exponent),
            SamplesPerInsertLimiter(config.limiter),
            config.capacity,
        )
        self.clock = StageClock(STAGES)
        self.roster = Roster(config.shard)
        self._counted = self.roster.counted()  # as the log keeps it, at most a second old
        self.leases = SlotLeases(config.slots)
        self.state = "warming"
        self._next_generation = 0  # of the service before this one
        self._log: ChunkLog | None = None
        self._writer: LogWriter | None = None
        if config.redis is not None:
            client = connect(config.redis, login=config.redis_login)
            self._log = ChunkLog(client, config.run, config.shard, self.service, config.redis_keep_seconds)
            self._writer = LogWriter(self._log)
        self.durability = Durability(self.table, self._writer, self._log_state)
        self.ingest_server = Server(config.ingest, config.security, high_water_mark=max(64, 4 * config.credits))
        try:
            self.sample_server = Server(config.sample, config.security)
        except BaseException:
            self.ingest_server.close()
            raise
        # Where actors and the learner connect; ports are resolved.
        self.ingest_endpoint, self.sample_endpoint = self.ingest_server.endpoint, self.sample_server.endpoint
        self.sampling = Sampling(
            self.sample_server,
            self.table,
            self.service,
            config.shard,
            config.seed,
            lambda: (self.roster.steps_total, self.roster.raw_frames_total),
        )
        self.ingest = Ingest(
            self.ingest_server,
            self.table,
            self.durability,
            self.roster,
            self.leases,
            self.service,
            config.credits,
            lambda: self.sampling.epoch,
            config.actor_timeout_seconds,
            partial(read_segment, layout=layout, with_frames=False),
            InTurns(self.table, self.sampling) if config.in_turns else None,
        )
        self.on_turn: Callable[[], None] = lambda: None
        self._blocked = StatusClock()
        self._stats: tuple[float, bytes] = (-1.0, b"{}")
        self._next_status = self._next_housekeeping = self.priority_drift = 0.0
        self._next_snapshot = time.monotonic() + config.snapshot_seconds
        self.status = ShardStatus()
        self._publish(time.monotonic())

    def run(self, stop: threading.Event) -> None:
        """Serve until ``stop`` is set; then write what waits to the log and close everything."""
        try:
            self._serve(stop)
        finally:
            self._end()

    def _serve(self, stop: threading.Event) -> None:
        warming: Iterator[list[int]] | None = self._warm()
        poller = zmq.Poller()
        poller.register(self.ingest_server.socket, zmq.POLLIN)
        poller.register(self.sample_server.socket, zmq.POLLIN)
        if self._writer is not None:
            poller.register(self._writer.waker.fileno(), zmq.POLLIN)
        while not stop.is_set():
            self.clock.enter("poll")
            wait = _LAGGING_MILLISECONDS if self.sampling.mirror_lags else _IDLE_MILLISECONDS
            readable = dict(poller.poll(wait if warming is None else 0))
            now = time.monotonic()
            if warming is not None:
                self.clock.enter("log")
                if next(warming, None) is None:
                    warming = None
            else:
                self.clock.enter("ingest")
                if self.ingest_server.socket in readable:
                    self.ingest.receive(now)
                self.clock.enter("log")
                self.durability.pump()
                if self._writer is not None:
                    self._writer.thread.check()  # before anything is acknowledged that it has not written
                self.clock.enter("ingest")
                self.ingest.reply()
            self.clock.enter("sample")
            if self.sample_server.socket in readable:
                self.sampling.receive(self.state, self._stats_json)
            self.sampling.serve(now, sampling=warming is None)
            if warming is None:
                self.state = "serving" if self.table.limiter.inserted >= self.config.limiter.min_size else "filling"
            self.on_turn()
            self.clock.enter("status")
            self._blocked.observe(now, self.table.limiter, self.ingest.inserts_wait, self.sampling.samples_wait)
            self._housekeep(now, warm=warming is None)

    def _warm(self) -> Iterator[list[int]]:
        """Restore everything from the log in slices. Where Redis fails for too long, or the log is damaged,
        start with what was read, and write the log anew: what was not read would else stay in it for ever."""
        if self._log is None:
            return
        chunk_log, started = self._log, time.monotonic()
        dropped: list[int] = []
        try:
            yield from patiently(chunk_log.take_over, _REDIS_PATIENCE_SECONDS)
            state = yield from patiently(chunk_log.state, _REDIS_PATIENCE_SECONDS)
            self._take_up(state)
            for some in restore_chunks(self.table, chunk_log, _REDIS_PATIENCE_SECONDS):
                dropped += some
                yield some
            leases = yield from patiently(lambda: chunk_log.leases(self.config.slots), _REDIS_PATIENCE_SECONDS)
            self.leases.restore(((x.slot, x.actor, x.incarnation, x.seconds) for x in leases), time.monotonic())
            episodes = yield from patiently(lambda: chunk_log.episodes(EPISODES_SHOWN), _REDIS_PATIENCE_SECONDS)
            self.roster.restore_episodes([fields for _, fields in episodes])
        except (redis.RedisError, DamagedLog) as error:
            problem = in_words(error) if isinstance(error, redis.RedisError) else str(error)
            log.warning(
                "replay log: can't be read (%s); starting with the %d transitions that were, not durable",
                problem,
                self.table.items,
            )
            self._jump_generations()
            self.durability.start_over(f"the log can't be read: {problem}")
            return
        self._jump_generations()
        if state.counters:
            log.info(
                "replay log: %d transitions in %d chunks restored in %.1f s",
                self.table.items,
                len(self.table),
                time.monotonic() - started,
            )
        self.durability.restored(dropped)

    def _take_up(self, state: LogState) -> None:
        """Go on counting where the log says that the service before has stopped."""
        counters = state.counters
        self.table.limiter.inserted = counters.get("inserted", 0)
        self.table.limiter.sampled = counters.get("sampled", 0)
        steps, raw_frames, lives = counters.get("steps", 0), counters.get("raw_frames", 0), {}
        if state.counted is not None:
            steps, raw_frames = state.counted.steps, state.counted.raw_frames
            # An actor whose experience is in the log and that is not in the count yet has no step in the totals.
            newcomers = {(actor, accepted.incarnation): (0, 0) for actor, accepted in state.seen.items()}
            lives = newcomers | dict(state.counted.lives)
        self.roster.resume(Counted(steps, raw_frames, lives))
        self._counted = self.roster.counted()
        self.roster.episodes_total = counters.get("episodes", 0)
        self.sampling.epoch = counters.get("learner_epoch", 0)
        self.ingest.restore(state.seen)
        self._next_generation = counters.get("next_generation", 0)

    def _jump_generations(self) -> None:
        """Number new chunks far beyond those of the service before, if there was one."""
        if self._next_generation:
            self.table.next_generation = max(self.table.next_generation, self._next_generation) + GENERATION_JUMP

    def _log_state(self) -> LogState:
        return LogState(
            counters={
                "inserted": self.table.limiter.inserted,
                "sampled": self.table.limiter.sampled,
                "next_generation": self.table.next_generation,
                "learner_epoch": self.sampling.epoch,
                "steps": self._counted.steps,
                "raw_frames": self._counted.raw_frames,
                "episodes": self.roster.episodes_total,
            },
            seen=dict(self.ingest.accepted.by_actor),  # the writer reads it later, on its own thread
            counted=self._counted,
        )

    def _housekeep(self, now: float, *, warm: bool) -> None:
        if now >= self._next_status:
            self._next_status = now + _STATUS_SECONDS
            self._publish(now)
        if not warm or now < self._next_housekeeping:
            return
        self._next_housekeeping = now + _HOUSEKEEPING_SECONDS
        self.ingest.expire(now)
        self._counted = self.roster.counted()
        self.durability.touch()
        self.priority_drift = self.table.selector.tree.drift()
        if now >= self._next_snapshot:
            self._next_snapshot = now + self.config.snapshot_seconds
            self.durability.snapshot(lambda: pack_weights(self.table))

    def _publish(self, now: float) -> None:
        self.status = describe(
            service=self.service,
            config=self.config,
            table=self.table,
            ingest=self.ingest,
            sampling=self.sampling,
            durability=self.durability,
            roster=self.roster,
            servers=(self.ingest_server, self.sample_server),
            clock=self.clock,
            blocked=self._blocked,
            state=self.state,
            priority_drift=self.priority_drift,
            now=now,
        )

    def _stats_json(self) -> bytes:
        now = time.monotonic()
        if now - self._stats[0] > 0.1:
            self._publish(now)
            # Every shard accepts chunks of every actor: that alone would be most of what a learner of many shards reads.
            self._stats = (now, dumps(replace(self.status, accepted={}).to_document()).encode())
        return self._stats[1]

    @property
    def unsaved(self) -> str:
        """Why the log does not hold all that the table does; empty where it does, or where none is kept."""
        durability = self.durability
        if durability.state in ("Off", "Restoring") or durability.up_to_date:
            return ""
        return durability.reason or f"{durability.lag_chunks} chunks were not written in time"

    def _end(self) -> None:
        if self._writer is not None:
            if self.state != "warming" and not self._writer.thread.failed:
                self._counted = self.roster.counted()
                self.durability.snapshot(lambda: pack_weights(self.table))
                self.durability.flush(3.0)
                self.ingest.reply()
            self._writer.close()
        self._publish(time.monotonic())
        self.ingest_server.close()
        self.sample_server.close()
        self.clock.stop()
