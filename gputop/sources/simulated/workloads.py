"""What a process does to its GPU over time: training, serving, notebooks, rendering…

A workload is a pure function of the seconds since the simulation began (negative before it), so that any clock,
stepped in any way, sees the same curves. Shares are 0 to 1, rates bytes per second, memory MiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gputop.sources.simulated.noise import clamp, noise, smooth

FLUSH_SECONDS = 53.0  # between two flushes of an allocator's cache
CONTEXT_MIB = 612.0  # of CUDA itself
FLUSHING_SECONDS = 8.0  # that one takes: less than a jump of memory between two readings
SAMPLES_PER_SECOND = 6  # the driver's utilization counters are averages over about 1/6 s


class Load(NamedTuple):
    """What one process asks of one GPU at a moment."""

    busy: float = 0.0  # share of time in which a kernel ran: utilization.gpu
    active: float = 0.0  # SM active
    occupancy: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    rx: float = 0.0  # PCIe, to the GPU
    tx: float = 0.0
    nvlink: float = 0.0  # each direction, share of all links
    encoder: float = 0.0
    decoder: float = 0.0


REST = Load()


class Workload(Protocol):
    def load(self, t: float) -> Load: ...

    def memory(self, t: float) -> float:
        """MiB, the CUDA context included."""
        ...


@dataclass(frozen=True, slots=True)
class Idle:
    """Holds memory and does nothing: a forgotten server, a notebook left open."""

    mib: float

    def load(self, t: float) -> Load:
        return REST

    def memory(self, t: float) -> float:
        return self.mib


@dataclass(frozen=True, slots=True)
class Training:
    """Forward, backward, all-reduce and optimizer; data stalls now and then; a checkpoint every few minutes.

    Ranks of one job share *seed* (and so their phases) and differ by *rank*, which only jitters.
    """

    mib: float
    seed: int
    rank: int = 0
    step: float = 2.6  # seconds
    checkpoint_every: float = 233.0
    checkpoint_takes: float = 7.0
    intensity: float = 1.0
    nvlink: float = 0.0

    def load(self, t: float) -> Load:
        u = t + self._phase
        tick = int(t * SAMPLES_PER_SECOND // 1)
        jitter = noise(tick, self.seed + self.rank * 101) - 0.5
        into = u % self.checkpoint_every
        if into < self.checkpoint_takes:  # state goes out to the host in shards, the next step waits
            flow = 0.4 + 0.6 * noise(tick // 3, self.seed + self.rank * 7)
            return Load(0.04 + 0.05 * flow, 0.02, 0.05, 0.0, 0.03, 40e6, 11e9 * flow, 0.0)
        if into < self.checkpoint_takes + 1.2:  # warm again
            return Load(0.7, 0.45, 0.2, 0.2, 0.2, 200e6, 20e6, self.nvlink * 0.3)
        stall = u % 17.0
        if stall < 1.5 and noise(int(u // 17.0), self.seed) > 0.72:  # the data loader is late
            return Load(0.24 + 0.2 * jitter, 0.16, 0.1, 0.05, 0.08, 22e6, 8e6, 0.02 * self.nvlink)
        i = self.intensity
        x = (u / self.step) % 1.0
        if x < 0.34:  # forward
            return Load(
                0.98 + 0.03 * jitter, (0.89 + 0.04 * jitter) * i, 0.27, (0.55 + 0.06 * jitter) * i,
                (0.29 + 0.05 * jitter) * i, 90e6 * (1 + jitter), 14e6, self.nvlink * 0.45,
            )  # fmt: skip
        if x < 0.84:  # backward, its all-reduce overlapped
            return Load(
                0.995 + 0.01 * jitter, (0.95 + 0.03 * jitter) * i, 0.29, (0.64 + 0.05 * jitter) * i,
                (0.36 + 0.05 * jitter) * i, 70e6 * (1 + jitter), 17e6, self.nvlink * (0.8 + 0.2 * jitter),
            )  # fmt: skip
        return Load(  # optimizer: memory-bound
            0.93 + 0.1 * jitter, (0.78 + 0.06 * jitter) * i, 0.41, 0.04, (0.71 + 0.08 * jitter) * i, 260e6, 30e6,
            self.nvlink * 0.25,
        )  # fmt: skip

    def memory(self, t: float) -> float:
        """The allocator's cache grows step by step until it is flushed; a checkpoint gathers the state first, and
        flushes it after. *mib* is the most."""
        u = t + self._phase
        into = u % self.checkpoint_every
        if into < self.checkpoint_takes:
            share = 0.985 + 0.015 * into / self.checkpoint_takes
        else:
            since = (into - self.checkpoint_takes) % FLUSH_SECONDS
            grown = since // self.step * self.step / (FLUSH_SECONDS - FLUSHING_SECONDS)
            left = (FLUSH_SECONDS - since) / FLUSHING_SECONDS
            share = 0.945 + 0.035 * min(grown, left)
        return self.mib * share + 2.0 * int(4 * noise(int(t // 9), self.seed + self.rank))

    @property
    def _phase(self) -> float:
        return self.seed % 997 * 0.731 + 31.0


@dataclass(frozen=True, slots=True)
class Leaking:
    """A training loop that keeps what it should drop: steady growth under the saw of a cache that is emptied."""

    mib: float  # at t = 0
    seed: int
    mib_per_minute: float
    saw_mib: float = 260.0
    saw_period: float = 15.0
    since: float | None = None  # grows from here on; None: always has
    training: Training = Training(0.0, 3)

    def load(self, t: float) -> Load:
        if self.since is not None and t - self.since < 4.0:  # imports, weights from disk
            return Load(0.03, 0.02, 0.05, 0.0, 0.02, 7e9, 2e6)
        return self.training.load(t)

    def memory(self, t: float) -> float:
        age = t - (self.since or 0.0)
        if self.since is not None and age < 4.0:
            return CONTEXT_MIB + (self.mib - CONTEXT_MIB) * clamp(age / 4.0)
        grown = self.mib + self.mib_per_minute * age / 60.0
        return max(CONTEXT_MIB, grown) + self.saw_mib * ((t / self.saw_period) % 1.0)

    def full_after(self, mib: float) -> float:
        """Seconds until *mib* is certainly asked for."""
        return max(6.0, (mib - self.mib - self.saw_mib) / self.mib_per_minute * 60.0)


@dataclass(frozen=True, slots=True)
class Serving:
    """An inference server: weights and KV cache taken at the start, workspace for the requests that are there; bursts
    of prefill over a sea of decode. *mib* is the most."""

    mib: float
    seed: int
    demand: float = 0.6
    nvlink: float = 0.0

    def load(self, t: float) -> Load:
        tide = 0.6 * smooth(t / 31.0, self.seed) + 0.4 * smooth(t / 6.0, self.seed + 5)
        level = clamp((tide - 1.0 + self.demand) / max(self.demand, 0.05) * 1.7)
        if level <= 0.03:
            return REST
        tick = int(t * SAMPLES_PER_SECOND // 1)
        if noise(tick // 2, self.seed + 9) < 0.32 * level:  # prefill: compute-bound
            return Load(
                clamp(0.75 + 0.25 * level), 0.55 + 0.38 * level, 0.24, 0.3 + 0.3 * level, 0.35, 180e6, 30e6,
                self.nvlink * 0.8,
            )  # fmt: skip
        wave = noise(tick, self.seed + 3)
        return Load(  # decode: bandwidth-bound
            clamp(0.25 + 0.75 * level - 0.15 * wave), 0.2 + 0.4 * level - 0.08 * wave, 0.14, 0.06 + 0.08 * level,
            0.12 + 0.6 * level - 0.06 * wave, 20e6 + 30e6 * wave, 12e6 + 24e6 * wave, self.nvlink * 0.3 * level,
        )  # fmt: skip

    def memory(self, t: float) -> float:
        return self.mib - min(0.07 * self.mib, 3_000.0) * (1.0 - smooth(t // 2.0 * 2.0 / 31.0, self.seed))


@dataclass(frozen=True, slots=True)
class Notebook:
    """Long idle; a cell is run every few minutes and leaves a little more behind until the kernel cleans up."""

    mib: float
    seed: int
    every: float = 190.0
    runs: float = 9.0

    def _cell(self, t: float) -> tuple[int, float]:
        u = t + self.seed % 89 * 2.3
        cell = int(u // self.every)
        return cell, u - cell * self.every - 20.0 * noise(cell, self.seed)

    def load(self, t: float) -> Load:
        _, into = self._cell(t)
        if not 0.0 <= into < self.runs:
            return REST
        wave = noise(int(t * SAMPLES_PER_SECOND // 1), self.seed)
        return Load(0.45 + 0.4 * wave, 0.3 + 0.3 * wave, 0.2, 0.1 * wave, 0.2 + 0.2 * wave, 400e6 * wave, 90e6 * wave)

    def memory(self, t: float) -> float:
        cell, into = self._cell(t)
        kept = 0.06 * (cell % 6)
        return self.mib * (1.0 + kept + (0.2 if 0.0 <= into < self.runs else 0.0))


@dataclass(frozen=True, slots=True)
class Batches:
    """Work, pause, work: diffusion sampling, evaluation, rendering frame by frame."""

    mib: float
    seed: int
    work: float = 14.0
    pause: float = 4.0
    active: float = 0.86
    tensor: float = 0.4
    dram: float = 0.4
    scratch_mib: float = 0.0  # taken while at work

    def _working(self, t: float) -> bool:
        return bool((t + self.seed % 71 * 1.7) % (self.work + self.pause) < self.work)

    def load(self, t: float) -> Load:
        if not self._working(t):
            return Load(0.02, 0.01, 0.02, 0.0, 0.01, 60e6, 30e6)
        wave = noise(int(t * SAMPLES_PER_SECOND // 1), self.seed) - 0.5
        return Load(
            clamp(0.96 + 0.08 * wave), clamp(self.active + 0.08 * wave), 0.34, clamp(self.tensor * (1 + 0.2 * wave)),
            clamp(self.dram + 0.1 * wave), 55e6 * (1 + wave), 80e6 * (1 + wave),
        )  # fmt: skip

    def memory(self, t: float) -> float:
        return self.mib + (self.scratch_mib if self._working(t) else 0.0)


@dataclass(frozen=True, slots=True)
class Desktop:
    """A display server, a shell or a browser: small bursts when somebody moves something."""

    mib: float
    seed: int
    liveliness: float = 0.12

    def load(self, t: float) -> Load:
        stir = (
            smooth(t / 3.0, self.seed) ** 3
            * self.liveliness
            * (0.6 + 0.8 * noise(int(t * SAMPLES_PER_SECOND), self.seed))
        )
        return Load(stir, stir * 0.6, 0.1, 0.0, stir * 0.5, 900e6 * stir, 120e6 * stir)

    def memory(self, t: float) -> float:
        return self.mib + int(24 * smooth(t / 20.0, self.seed))


@dataclass(frozen=True, slots=True)
class Transcoding:
    """ffmpeg with NVDEC and NVENC, and little else."""

    mib: float
    seed: int
    encoder: float = 0.72
    decoder: float = 0.41

    def load(self, t: float) -> Load:
        scene = smooth(t / 4.0, self.seed) - 0.5
        grain = noise(int(t * SAMPLES_PER_SECOND // 1), self.seed) - 0.5
        return Load(
            0.16 + 0.08 * scene, 0.08 + 0.04 * scene, 0.12, 0.0, 0.12 + 0.06 * scene, 310e6 * (1 + scene), 95e6, 0.0,
            clamp(self.encoder + 0.3 * scene + 0.08 * grain), clamp(self.decoder + 0.24 * scene + 0.06 * grain),
        )  # fmt: skip

    def memory(self, t: float) -> float:
        return self.mib
