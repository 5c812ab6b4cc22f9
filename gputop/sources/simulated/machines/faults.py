"""Machines where something is wrong: leaks, lost, slow, hung and hot GPUs, programs out of memory, hostile names."""

from __future__ import annotations

from typing import Final

from gputop.model import Severity, Xid, clean_text
from gputop.sources.simulated.gpu import SimulatedFault
from gputop.sources.simulated.machines.gpu_models import GPU_MODELS
from gputop.sources.simulated.machines.plan import MachinePlan, plan
from gputop.sources.simulated.machines.process_factory import DAY, HOUR, MINUTE, Restart, on
from gputop.sources.simulated.machines.servers import cluster_node, dead_pid
from gputop.sources.simulated.workloads import Idle, Leaking, Notebook, Serving, Training, Workload


def leak(seed: int) -> MachinePlan:
    """Memory held by dead parents, a forgotten server, a debugger somebody stopped."""
    made = plan([GPU_MODELS["h200"]] * 2, seed)
    factory = made.factory
    dead_pid(made, 0, 61_020, 71_680, "cv", "python ddp.py --nodes 1 --dataset imagenet22k --accum 4", 4, 14.2 * HOUR)
    dead_pid(made, 1, 58_377, 22_528, "nlp", "python pretrain.py --resume last.ckpt", 2, 41.0 * HOUR)
    factory.skip_to(62_400)
    factory.run(
        "alice", "python finetune.py --lora", on(0, Training(44_000.0, seed + 5, step=1.7)), ago=0.9 * HOUR, rss=7.7
    )
    factory.run("bob", "python server.py", on(1, Idle(31_000.0)), ago=3.1 * DAY, rss=2.2, cpu=0.0)
    factory.run("carol", "python debug.py", on(1, Idle(9_100.0)), ago=8.0 * HOUR, rss=1.6, cpu=0.0, stopped=True)
    factory.run("root", "/usr/bin/dcgmi diag -r 3", on(1, Idle(2_400.0)), ago=0.3 * HOUR, rss=0.2, cpu=0.0)
    engine = factory.service("emre", "VLLM::Worker_TP1", on(1, Idle(16_900.0)), ago=5.0 * HOUR, rss=4.1, cpu=0.0)
    engine.session = engine.group = engine.pid - 311  # whose server, and whose shell, are gone
    return made


def lost_gpu(seed: int) -> MachinePlan:
    """GPU 3 of 8 falls off the bus; its process hangs in the driver, and ends when the GPU is back after a reset."""
    made = cluster_node("h200", 8, seed)
    gone, back, cause = 20.0, 60.0, "its GPU was lost"
    xid = Xid(gone, 79, "GPU has fallen off the bus", Severity.CRITICAL)
    gpu, population = made.gpus[3], made.population
    gpu.fault = SimulatedFault(lost=(gone, back), xids=(xid,))
    ((process, use),) = population.on_gpu[gpu.index]

    def falls(t: float) -> None:
        process.stuck = True

    def returns(t: float) -> None:
        population.release(process, t)
        population.end(process, t + 1.5, cause)

    population.at(gone, falls)
    population.at(back, returns)
    Restart(population, 8.0, lambda start: use.workload, cause).watch(process)  # torchrun starts the rank again
    return made


def slow(seed: int) -> MachinePlan:
    made = cluster_node("h200", 8, seed)
    made.gpus[2].fault = SimulatedFault(answers_after=3.0, slow_from=3.0)
    return made


def hang(seed: int) -> MachinePlan:
    made = cluster_node("h200", 8, seed)
    made.gpus[2].fault = SimulatedFault(hangs_from=5.0)
    return made


def hot(seed: int) -> MachinePlan:
    """The airflow fails; memory errors and a broken program besides."""
    made = cluster_node("h100", 4, seed)
    made.gpus[0].fault = SimulatedFault(cooling_from=5.0, cooling_factor=2.0, corrected=3)
    made.gpus[1].fault = SimulatedFault(
        cooling_from=12.0,
        cooling_factor=2.9,
        corrected=11,
        corrected_per_minute=7.0,
        uncorrected=1,
        rows_corrected=2,
        rows_uncorrected=1,
        remap_pending=True,
        xids=(
            Xid(8.0, 63, "row remapping recorded: a reset applies it", Severity.WARNING),
            Xid(31.0, 94, "contained uncorrectable memory error", Severity.CRITICAL),
        ),
    )
    made.gpus[2].fault = SimulatedFault(
        xids=(
            Xid(14.0, 31, "illegal memory access by a program (MMU fault)", Severity.WARNING),
            Xid(47.0, 43, "a program's channel was stopped", Severity.INFO),
        )
    )
    return made


def busy_oom(seed: int) -> MachinePlan:
    """A program fills GPU 0 in a minute or two, runs out of memory and is started again, for ever."""
    made = plan([GPU_MODELS["h200"]] * 2, seed)
    factory = made.factory
    loop = Training(0.0, seed + 1, step=1.2)
    factory.run(
        "ml", "vllm serve mistral-large", on(0, Serving(46_000.0, seed, 0.7)), ago=2 * DAY, rss=7.0, name="vllm"
    )

    def growing(mib: float, start: float | None) -> Leaking:
        return Leaking(mib, seed + 1, 60_000.0, 1_500.0, 7.0, start, loop)

    def full_after(work: Workload) -> float:
        return work.full_after(95_500.0) if isinstance(work, Leaking) else DAY

    train = factory.run(
        "alice", "python train.py --batch-size 512", on(0, growing(64_000.0, None)), ago=MINUTE, rss=9.0
    )
    Restart(made.population, 5.0, lambda start: growing(18_000.0, start), lives=full_after).watch(train)
    factory.run("bob", "python train.py", on(1, Training(118_000.0, seed + 8)), ago=5 * HOUR, rss=9.0)
    return made


#: (user, command line) as they might stand in /proc.
HOSTILE: Final = (
    ("ml", "python \x1b[31mred\x1b[0m\x1b]0;owned\x07 train.py\r\nrm -rf /"),
    ("a[/b]\x1bc", "python [/bold][red]markup[/x] [link=file:///etc/passwd]click[/link] {braces} $(subshell)"),
    ("ユーザー", "python \u202egnp.exe\u202c \u2066isolated\u2069 \u200bzero\u200bwidth\ufeff"),
    ("a-user-with-a-very-long-name", "python " + "a-very-long-argument-" * 14),
    ("root", "python " + "漢字かな交じり文のとても長い引数" * 6),
    ("bob", "\ud800\udfff lone surrogates"),
    ("alice", "python 👩‍👩‍👧‍👦 👍🏽 🏴‍☠️ e\u0301\u0301\u0301 ﷽"),
    ("cv", "[\x1b[5mblink]"),
)


def hostile(seed: int) -> MachinePlan:
    made = plan([GPU_MODELS["h200"]] * 2, seed, clean_text("host\x1b[2J[/x]"))
    for k, (user, command) in enumerate(HOSTILE):
        work = Training(9_000.0 + k * 700, seed + k) if k % 2 else Notebook(2_000.0 + k * 500, seed + k, every=60.0)
        made.factory.run(user, command, on(k % 2, work), ago=k * HOUR + MINUTE, name=command[:15], pid=2_000_000 + k)
    return made
