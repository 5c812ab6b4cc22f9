"""The named machines: what is in them and who works there. ``N x MODEL`` names (``4xh200``, ``16xa100``) work for all boards."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gputop.model import Severity, Xid, clean_text
from gputop.sources.simulated.boards import ALIASES, BOARDS, GIB, Board
from gputop.sources.simulated.crew import DAY, HOUR, MINUTE, Crew, on, restarting
from gputop.sources.simulated.gpu import Ailment, Instance, SimulatedGpu
from gputop.sources.simulated.population import Population, Use
from gputop.sources.simulated.workloads import (
    Batches,
    Desktop,
    Idle,
    Leaking,
    Notebook,
    Serving,
    Training,
    Transcoding,
)


class UnknownScenario(ValueError):
    """No simulated machine has this name; ``str()`` says which there are."""


@dataclass
class Plan:
    """A machine in the making."""

    gpus: list[SimulatedGpu]
    crew: Crew
    seed: int
    host_name: str = "gpu01"
    cpu_count: int = 128
    memory_bytes: int = 1024 * GIB
    memory_base_bytes: int = 14 * GIB
    hosts: dict[str, str] = field(default_factory=dict)

    @property
    def population(self) -> Population:
        return self.crew.population


def _plan(board: Board, count: int, seed: int, host_name: str = "gpu01", boards: tuple[Board, ...] = ()) -> Plan:
    population = Population(count)
    rng = random.Random(seed * 7919 + count)
    gpus = []
    for index in range(count):
        one = boards[index] if boards else board
        digits = f"{rng.getrandbits(128):032x}"
        uuid = f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
        serial = f"165{rng.randrange(10**10):010d}"
        bus = f"00000000:{(0x18 + index * 0x11) % 0x100:02X}:00.0"
        gpus.append(SimulatedGpu(index, one, uuid, serial, bus, seed + 1000 + index * 37, population))
    plan = Plan(gpus, Crew(population, rng), seed, host_name)
    if not board.server:
        plan.cpu_count, plan.memory_bytes, plan.memory_base_bytes = 32, 128 * GIB, 3 * GIB
    return plan


# ------------------------------------------------------------------------- two GPUs


def _training_box(seed: int) -> Plan:
    """The default: GPU 0 fills up, GPU 1 is held in part by a dead process."""
    plan = _plan(BOARDS["h200"], 2, seed)
    crew = plan.crew
    plan.cpu_count, plan.memory_bytes = 96, 256 * GIB
    leak = Leaking(82_350.0, seed + 3, 1_229.0, training=Training(0.0, seed + 3, step=2.6))
    crew.skip_to(41_832)
    command = "python train.py --config configs/llama70b.yaml --tp 1 --micro-batch 2 --seq-len 8192 --wandb-project llama70b-sft"
    train = crew.run("ml", command, on(0, leak), ago=3.2 * HOUR, rss=12.1, cpu=104.0, threads=187, pid=41_832, job="88123")
    crew.data_workers(train, 4, cpu=46.0)
    restarting(crew.population, train, 20.0, lambda start: Leaking(
        21_000.0, seed + 3, 1_229.0, since=start, training=leak.training), 0,
        lambda work: work.full_after(135_000.0) if isinstance(work, Leaking) else 9e9)  # fmt: skip
    crew.skip_to(44_210)
    crew.run(
        "bob", "/home/bob/venv/bin/python -m ipykernel_launcher -f /home/bob/.local/share/jupyter/runtime/kernel-9c1f.json",
        on(0, Notebook(3_300.0, seed + 11, every=150.0)), ago=26.0 * HOUR, rss=2.3, threads=31, name="python",
    )  # fmt: skip
    crew.run(
        "zhang", "python 推理/评测.py --模型 qwen3-8b --数据集 中文阅读理解", on(0, Batches(2_214.0, seed + 5, 9.0, 21.0, 0.3, 0.2, 0.3)),
        ago=0.7 * HOUR, rss=4.0, threads=44,
    )  # fmt: skip
    _ghost(plan, 1, 50_211, 38_912, "cv", "python ddp.py --world-size 4 --backbone vit-huge", workers=3, ago=9.7 * HOUR)
    crew.run(
        "cv", "python serve.py --port 8000 --model-path /data/models/vit-huge", on(1, Idle(82_022.0)), ago=9.66 * HOUR,
        rss=3.2, cpu=0.0, threads=52, pid=50_400,
    )  # fmt: skip
    crew.skip_to(51_118)
    crew.run(
        "alice", "vllm serve intfloat/e5-mistral-7b --task embed --gpu-memory-utilization 0.07", on(1, Serving(9_884.0, seed + 21, 0.55)),
        ago=2 * DAY, rss=6.8, cpu=118.0, rest=3.0, threads=96, name="vllm",
    )  # fmt: skip
    return plan


def _ghost(plan: Plan, gpu: int, pid: int, mib: float, user: str, command: str, workers: int, ago: float) -> None:
    """A process that ended, whose memory its forked workers keep: NVML goes on listing the dead pid."""
    crew = plan.crew
    shell = crew.shell(user, "ddp", ago + HOUR)
    dead = crew.run(user, command, on(gpu, Idle(mib)), parent=shell, pid=pid, ago=ago, rss=4.0, threads=60)
    for k in range(workers):
        crew.run(
            user, command, parent=dead, pid=pid + 166 + k, ago=ago - 40.0 - k, rss=1.1, cpu=0.0, threads=7,
            inherited_from=pid, name="python",
        )  # fmt: skip
    crew.population.end(dead, -ago + 1.1 * HOUR, "SIGKILL")


# ------------------------------------------------------------------------- many GPUs


def _cluster_node(model: str, count: int, seed: int) -> Plan:
    """A server of *count* boards: a big training over most, servers, notebooks, batch jobs on the rest."""
    board = BOARDS[model]
    plan = _plan(board, count, seed, host_name=f"{model}-node-{seed % 40 + 7:02d}")
    crew, total = plan.crew, float(board.memory_mib - board.reserved_mib)
    plan.cpu_count = max(32, 16 * count)
    plan.memory_bytes = max(128, 256 * count) * GIB
    if count == 1:
        _mixed(plan, 0, total)
        return plan
    wide = count * 5 // 8 or 1
    crew.torchrun(
        "ml", "train.py --config configs/llama70b.yaml --tp 8 --pp 1 --global-batch 1024 --activation-checkpointing", range(wide),
        lambda rank: Training(total * 0.83 + 310.0 * ((rank * 5) % 3), seed + 3, rank, nvlink=0.42), ago=61.0 * HOUR, workers=2,
        job="91702",
    )  # fmt: skip
    serving = list(range(wide, min(count, wide + max(1, count // 8))))
    for gpu in serving:
        _inference(plan, gpu, total)
    rest = range(wide + len(serving), count)
    for k, gpu in enumerate(rest):
        (_mixed, _fine_tune)[k % 2](plan, gpu, total)
    if count >= 4:
        plan.gpus[-2].hidden_bytes = int(total * 0.085) * (1 << 20)  # of a container's, which the driver does not list
    return plan


def _inference(plan: Plan, gpu: int, total: float) -> None:
    crew, seed = plan.crew, plan.seed + gpu * 13
    main = crew.service(
        "vllm", "/opt/vllm/bin/python -m vllm.entrypoints.openai.api_server --model meta-llama/Llama-3.3-70B-Instruct-FP8 "
        "--quantization fp8 --max-model-len 32768 --gpu-memory-utilization 0.90 --enable-prefix-caching --port 8000",
        rss=5.1, cpu=40.0, rest=2.0, threads=71, name="vllm", ago=5 * DAY,
    )  # fmt: skip
    work = Serving(total * 0.9, seed + 1, 0.8)
    engine = crew.run(
        "vllm", "VLLM::EngineCore", on(gpu, work), parent=main, ago=5 * DAY - 20.0, rss=8.8, cpu=104.0, rest=2.0, threads=133,
        name="VLLM::EngineCor", executable="/opt/vllm/bin/python",
    )  # fmt: skip
    restarting(crew.population, engine, 6.0, lambda start: work, gpu)


def _mixed(plan: Plan, gpu: int, total: float) -> None:
    """Several people share this one."""
    crew, seed, rng = plan.crew, plan.seed + gpu * 17, plan.crew.rng
    hub = crew.service("root", "/opt/jupyterhub/bin/python /opt/jupyterhub/bin/jupyterhub-singleuser", rss=0.3, cpu=0.0, name="jupyterhub")
    for user, share in (("bob", 0.035), ("carol", 0.11), ("yuki", 0.02)):
        crew.run(
            user, f"/opt/conda/bin/python -m ipykernel_launcher -f /home/{user}/.local/share/jupyter/runtime/kernel-{rng.getrandbits(32):08x}.json",
            on(gpu, Notebook(612.0 + share * total, seed + len(user), every=100.0 + 40.0 * len(user))), parent=hub,
            ago=rng.uniform(2, 60) * HOUR, rss=2.1, threads=29, name="python",
        )  # fmt: skip
    crew.run(
        "speech", "python -m whisper.batch --model large-v3 --language auto --input /data/podcasts/2026-11 --workers 6",
        on(gpu, Batches(0.13 * total, seed + 2, 11.0, 6.0, 0.55, 0.3, 0.5)), ago=5.3 * HOUR, rss=4.4, cpu=160.0, threads=58,
    )  # fmt: skip
    crew.run(
        "zhang", "python 训练/微调.py --模型 qwen3-14b --学习率 1e-5", on(gpu, Leaking(0.22 * total, seed + 4, 60.0, 300.0, 40.0, None,
        Training(0.0, seed + 4, step=1.4, intensity=0.7))), ago=1.4 * HOUR, rss=9.7, threads=88,
    )  # fmt: skip


def _fine_tune(plan: Plan, gpu: int, total: float) -> None:
    crew, seed = plan.crew, plan.seed + gpu * 19
    run = crew.run(
        "nlp", "python -m axolotl.cli.train examples/mistral-lora.yml --deepspeed zero2.json --output-dir "
        "/scratch/nlp/experiments/2026-11-28/mistral-lora-r64-alpha128-dropout0.05-lr2e-4-cosine-warmup0.03-seed42/checkpoints",
        on(gpu, Training(0.58 * total, seed + 2, step=1.1, checkpoint_every=140.0, checkpoint_takes=4.0)), ago=7.6 * HOUR,
        rss=14.2, threads=141, job="91855",
    )  # fmt: skip
    crew.data_workers(run, 2)
    crew.service(
        "triton", "tritonserver --model-repository=/models --http-port=8100 --metrics-port=8102", on(gpu, Serving(0.09 * total, seed + 7, 0.4)),
        rss=3.3, cpu=70.0, threads=64,
    )  # fmt: skip
    crew.run(
        "olamide", "python eval_harness.py --tasks mmlu,gsm8k,arc --limit 500", on(gpu, Idle(0.04 * total)), ago=31.0 * HOUR,
        rss=1.9, cpu=0.0, threads=33, stopped=True,
    )  # fmt: skip
    crew.run(
        "dmitri", "./gmx mdrun -deffnm npt -nb gpu -ntomp 16", on(gpu, Batches(0.01 * total + 400, seed + 9, 50.0, 1.0, 0.3, 0.0, 0.25)),
        ago=19.0 * HOUR, rss=0.9, cpu=1480.0, threads=18, ignores_term=True, name="gmx",
    )  # fmt: skip


# ------------------------------------------------------------------------- faults


def _leak(seed: int) -> Plan:
    plan = _plan(BOARDS["h200"], 2, seed)
    crew = plan.crew
    _ghost(plan, 0, 61_020, 71_680, "cv", "python ddp.py --nodes 1 --dataset imagenet22k --accum 4", workers=4, ago=14.2 * HOUR)
    _ghost(plan, 1, 58_377, 22_528, "nlp", "python pretrain.py --resume last.ckpt", workers=2, ago=41.0 * HOUR)
    crew.skip_to(62_400)
    crew.run("alice", "python finetune.py --lora", on(0, Training(44_000.0, seed + 5, step=1.7)), ago=0.9 * HOUR, rss=7.7)
    crew.run("bob", "python server.py", on(1, Idle(31_000.0)), ago=3.1 * DAY, rss=2.2, cpu=0.0)
    crew.run("carol", "python debug.py", on(1, Idle(9_100.0)), ago=8.0 * HOUR, rss=1.6, cpu=0.0, stopped=True)
    return plan


def _lost_gpu(seed: int) -> Plan:
    plan = _cluster_node("h200", 8, seed)
    xid = Xid(20.0, 79, "GPU has fallen off the bus", Severity.CRITICAL)
    plan.gpus[3].ailment = Ailment(lost=(20.0, 60.0), xids=(xid,))
    return plan


def _slow(seed: int) -> Plan:
    plan = _cluster_node("h200", 8, seed)
    plan.gpus[2].ailment = Ailment(answers_after=3.0, ill_from=3.0)
    return plan


def _hang(seed: int) -> Plan:
    plan = _cluster_node("h200", 8, seed)
    plan.gpus[2].ailment = Ailment(hangs_from=5.0)
    return plan


def _hot(seed: int) -> Plan:
    plan = _cluster_node("h100", 4, seed)
    a, b, c, _ = plan.gpus
    a.ailment = Ailment(cooling_from=5.0, cooling_factor=1.75, corrected=3)
    b.ailment = Ailment(
        cooling_from=12.0, cooling_factor=2.3, corrected=11, corrected_per_minute=7.0, rows_corrected=2, rows_uncorrected=1,
        remap_pending=True, uncorrected=1, xids=(
            Xid(8.0, 63, "row remapping recorded: a reset applies it", Severity.WARNING),
            Xid(31.0, 94, "contained uncorrectable memory error", Severity.CRITICAL),
        ),
    )  # fmt: skip
    c.ailment = Ailment(xids=(
        Xid(14.0, 31, "illegal memory access by a program (MMU fault)", Severity.WARNING),
        Xid(47.0, 43, "a program's channel was stopped", Severity.INFO),
    ))  # fmt: skip
    return plan


def _busy_oom(seed: int) -> Plan:
    plan = _plan(BOARDS["h200"], 2, seed)
    crew = plan.crew
    crew.run("ml", "vllm serve mistral-large", on(0, Serving(46_000.0, seed, 0.7)), ago=2 * DAY, rss=7.0, name="vllm")
    greedy = Leaking(64_000.0, seed + 1, 46_000.0, 1_500.0, 7.0, 0.0, Training(0.0, seed + 1, step=1.2))
    first = crew.run("alice", "python train.py --batch-size 512", on(0, greedy), ago=0.0, rss=9.0)
    restarting(crew.population, first, 5.0, lambda start: Leaking(
        18_000.0, seed + 1, 62_000.0, 1_500.0, 7.0, start, Training(0.0, seed + 1, step=1.2)), 0,
        lambda work: work.full_after(97_000.0) if isinstance(work, Leaking) else 9e9)  # fmt: skip
    crew.run("bob", "python train.py", on(1, Training(118_000.0, seed + 8)), ago=5 * HOUR, rss=9.0)
    return plan


# ------------------------------------------------------------------------- other machines


def _mig(seed: int) -> Plan:
    plan = _plan(BOARDS["h200"], 2, seed)
    crew, rng = plan.crew, plan.crew.rng

    def uuid() -> str:
        digits = f"{rng.getrandbits(128):032x}"
        return f"MIG-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    plan.gpus[0].instances = (
        Instance(1, "3g.71gb", 71_424, 0.43, uuid()), Instance(5, "2g.35gb", 35_584, 0.29, uuid()),
        Instance(9, "1g.18gb", 17_792, 0.14, uuid()),
    )  # fmt: skip
    crew.run("ml", "python train.py --config small.yaml", on(0, Training(52_000.0, seed + 1), instance=1), ago=4 * HOUR, rss=6.0)
    crew.run("alice", "vllm serve qwen3-8b --port 8001", on(0, Serving(28_700.0, seed + 2), instance=5), ago=2 * DAY, rss=6.0, name="vllm")
    crew.run("bob", "python -m ipykernel_launcher -f kernel-71.json", on(0, Notebook(4_100.0, seed + 3), instance=9), ago=9 * HOUR)
    crew.run("carol", "python -m ipykernel_launcher -f kernel-2c.json", on(0, Idle(2_300.0), instance=9), ago=30 * HOUR, cpu=0.0)
    crew.run("cv", "python train.py --model dino", on(1, Training(101_000.0, seed + 4)), ago=11 * HOUR, rss=9.0)
    return plan


def _desktop(plan: Plan, gpu: int, user: str) -> None:
    crew = plan.crew
    login = crew.service("root", "/usr/sbin/gdm3", rss=0.02, cpu=0.0, ago=2 * DAY, name="gdm3")
    crew.run(
        "root", "/usr/lib/xorg/Xorg vt2 -displayfd 3 -auth /run/user/1003/gdm/Xauthority -nolisten tcp -background none -noreset",
        on(gpu, Desktop(286.0, plan.seed), "G"), parent=login, ago=2 * DAY, rss=0.2, cpu=20.0, rest=1.0, threads=14, name="Xorg",
    )  # fmt: skip
    shell = crew.run(user, "/usr/bin/gnome-shell", on(gpu, Desktop(164.0, plan.seed + 1), "G"), parent=login, ago=2 * DAY, rss=0.5, cpu=40.0, rest=2.0, threads=22)
    crew.run(user, "/usr/lib/firefox/firefox", on(gpu, Desktop(233.0, plan.seed + 2, 0.25), "G"), parent=shell, ago=7 * HOUR, rss=1.4, cpu=90.0, rest=3.0, threads=140)


def _laptop(seed: int) -> Plan:
    boards = (BOARDS["4090laptop"], BOARDS["2000adalaptop"])
    plan = _plan(boards[0], 2, seed, "thinker", boards)
    plan.memory_bytes = 64 * GIB
    crew = plan.crew
    _desktop(plan, 0, "alice")
    crew.run("alice", "/opt/blender/blender -b lighthouse.blend -E CYCLES -a", on(0, Batches(6_850.0, seed + 4, 21.0, 5.0, 0.9, 0.05, 0.5, 900.0), "C+G"), ago=0.6 * HOUR, rss=5.5, cpu=140.0, threads=70)
    crew.run("alice", "python sample.py --steps 30 --prompt 'a lighthouse at dawn'", on(0, Batches(3_120.0, seed + 5, 8.0, 31.0)), ago=0.2 * HOUR, rss=3.5)
    plan.gpus[0].display = True
    for gpu in plan.gpus:
        gpu.persistence = False
    plan.gpus[1].ailment = Ailment(sleeps=(45.0, 15.0))
    return plan


def _workstation(seed: int) -> Plan:
    boards = (BOARDS["4090"], BOARDS["6000ada"])
    plan = _plan(boards[0], 2, seed, "studio", boards)
    crew = plan.crew
    _desktop(plan, 0, "carol")
    plan.gpus[0].display = True
    media = crew.service("root", "/usr/lib/plexmediaserver/Plex", rss=0.4, cpu=5.0, rest=1.0, name="Plex")
    crew.run("carol", "ffmpeg -hwaccel cuda -i rushes/A012_C004.mov -c:v hevc_nvenc -preset p6 -b:v 40M out/A012_C004.mp4", on(0, Transcoding(742.0, seed + 1)), ago=0.5 * HOUR, rss=0.8, cpu=85.0, threads=41)
    crew.run("root", "/usr/lib/plexmediaserver/Plex Transcoder -codec:0 h264 -i /media/film.mkv", on(0, Transcoding(311.0, seed + 2, 0.2, 0.3)), parent=media, ago=0.4 * HOUR, rss=0.3, cpu=30.0, name="Plex Transcoder")
    crew.run("carol", "/opt/ComfyUI/venv/bin/python main.py --listen", on(0, Batches(13_900.0, seed + 3, 12.0, 9.0, 0.92, 0.6, 0.6, 2_100.0)), ago=9 * HOUR, rss=6.4, name="python")
    crew.run("carol", "python train_lora.py --rank 32 --resolution 1024", on(1, Training(37_800.0, seed + 5, step=1.3, checkpoint_every=160.0)), ago=3 * HOUR, rss=8.2)
    return plan


def _spark(seed: int) -> Plan:
    plan = _plan(BOARDS["gb10"], 1, seed, "spark-7f3c")
    plan.cpu_count, plan.memory_bytes, plan.memory_base_bytes = 20, 122_571 << 20, 6 * GIB
    crew = plan.crew
    crew.run("alice", "/opt/llama.cpp/llama-server -m gpt-oss-120b-mxfp4.gguf -c 65536 -ngl 99", on(0, Serving(63_400.0, seed + 1, 0.8)), ago=1.2 * DAY, rss=2.0)
    crew.run("alice", "python -m ipykernel_launcher -f kernel-0a.json", on(0, Notebook(2_900.0, seed + 2)), ago=5 * HOUR)
    return plan


def _empty(seed: int) -> Plan:
    return _plan(BOARDS["h200"], 8, seed)


def _no_gpus(seed: int) -> Plan:
    return _plan(BOARDS["h200"], 0, seed)


def _many(count: int, each: int, seed: int) -> Plan:
    """A crowd: small jobs of a dozen people, most of them at rest."""
    plan = _plan(BOARDS["h200"], count, seed, "crowded")
    plan.cpu_count, plan.memory_bytes = 256, 2048 * GIB
    crew, rng = plan.crew, plan.crew.rng
    users = ("ml", "cv", "nlp", "alice", "bob", "carol", "dmitri", "emre", "yuki", "speech", "zhang", "olamide")
    mib = 134_000.0 / max(1, each)
    scripts = ("train.py", "eval.py", "sweep_agent.py", "rollout.py", "embed.py", "infer.py")
    for k in range(count * each):
        gpu, user, one = k % count, rng.choice(users), mib * rng.uniform(0.4, 1.3)
        made = seed + k
        work = (
            Training(one, made, step=rng.uniform(0.7, 4.0), intensity=0.3) if k % 11 == 0
            else Serving(one, made, 0.3) if k % 7 == 0 else Notebook(one, made) if k % 3 == 0 else Idle(one)
        )  # fmt: skip
        crew.run(user, f"python {rng.choice(scripts)} --shard {k} --of {count * each}", on(gpu, work), ago=rng.uniform(0.02, 90) * HOUR, rss=rng.uniform(0.6, 3.0), cpu=95.0 if k % 2 else 0.0, threads=rng.randrange(8, 90))
    return plan


HOSTILE: Final = (
    "python \x1b[31mred\x1b[0m\x1b]0;owned\x07 train.py\r\nrm -rf /",
    "python [/bold][red]markup[/x] [link=file:///etc/passwd]click[/link] {braces} $(subshell)",
    "python \u202egnp.exe\u202c \u2066isolated\u2069 \u200bzero\u200bwidth\ufeff",
    "python " + "a-very-long-argument-" * 14,
    "python 漢字かな交じり文のとても長い引数" * 6,
    "\ud800\udfff lone surrogates",
    "python 👩‍👩‍👧‍👦 👍🏽 🏴‍☠️ e\u0301\u0301\u0301 ﷽",
    "",
)


def _hostile(seed: int) -> Plan:
    plan = _plan(BOARDS["h200"], 2, seed, clean_text("host\x1b[2J[/x]"))
    users = ("ml", "a[/b]\x1bc", "ユーザー", "a-user-with-a-very-long-name", "root", "bob", "alice", "cv")
    for k, (user, command) in enumerate(zip(users, HOSTILE, strict=True)):
        work = Training(9_000.0 + k * 700, seed + k) if k % 2 else Notebook(2_000.0 + k * 500, seed + k, every=60.0)
        plan.crew.run(user, command or "[\x1b[5mblink]", on(k % 2, work), ago=k * HOUR + MINUTE, name=(command or "[\x1b")[:15], pid=2_000_000 + k)
    return plan


_BUILDERS: Final[dict[str, tuple[Callable[[int], Plan], str]]] = {
    "": (_training_box, "2×H200: one fills up in 44 minutes, of the other a dead process holds 38 GiB (the default)"),
    "h200": (lambda seed: _cluster_node("h200", 1, seed), "1×H200 that several people share"),
    "8xh200": (lambda seed: _cluster_node("h200", 8, seed), "8×H200: a torchrun over five, vLLM, notebooks, batch jobs"),
    "8xh100": (lambda seed: _cluster_node("h100", 8, seed), "8×H100 80GB, the same"),
    "16xb200": (lambda seed: _cluster_node("b200", 16, seed), "16×B200: as many as fit a screen"),
    "leak": (_leak, "memory held by dead parents: NVML lists pids that do not exist, their orphans live"),
    "lost-gpu": (_lost_gpu, "GPU 3 of 8 falls off the bus after 20 s and is back after 60 s"),
    "mig": (_mig, "2×H200, the first cut into three MIG instances"),
    "laptop": (_laptop, "RTX 4090 Laptop with a desktop, a browser and Blender; a second GPU that sleeps"),
    "workstation": (_workstation, "RTX 4090 and RTX 6000 Ada with fans, video encoding and a desktop"),
    "spark": (_spark, "GB10, whose GPU shares the host's memory"),
    "hot": (_hot, "4×H100 with failing airflow, throttling, Xid events, ECC errors and a pending row remap"),
    "empty": (_empty, "8×H200 and nobody there"),
    "no-gpus": (_no_gpus, "a driver that counts no GPU"),
    "crowd": (lambda seed: _many(8, 64, seed), "8×H200 with 64 processes each"),
    "thousand": (lambda seed: _many(8, 125, seed), "8×H200 with 1000 processes"),
    "hostile": (_hostile, "process names that would like to take over the terminal"),
    "slow": (_slow, "8×H200, of which GPU 2 answers every call after 3 s"),
    "hang": (_hang, "8×H200, of which GPU 2 stops answering after 5 s"),
    "busy-oom": (_busy_oom, "2×H200, one filled to the brim every two minutes: out of memory, started again"),
}

#: Name and one line about it, for ``--demo=help``.
SCENARIOS: Final[dict[str, str]] = {name: words for name, (_, words) in _BUILDERS.items()}


def build(name: str, seed: int) -> Plan:
    """The machine called *name*: one of SCENARIOS, or NxMODEL. Raises UnknownScenario."""
    name = name.strip().lower()
    if name in _BUILDERS:
        return _BUILDERS[name][0](seed)
    match = re.fullmatch(r"(?:(\d{1,3})[x×])?([a-z0-9-]+)", name)
    model = ALIASES.get(match[2], match[2]) if match else ""
    if match is None or model not in BOARDS or not 1 <= int(match[1] or 1) <= 128:
        raise UnknownScenario(
            f"no demo is called {clean_text(name)!r}; there are {', '.join(n for n in SCENARIOS if n)}, "
            f"and NxMODEL of {', '.join(BOARDS)}"
        )
    return _cluster_node(model, int(match[1] or 1), seed + zlib.crc32(model.encode()) % 97)


__all__ = ["SCENARIOS", "Plan", "UnknownScenario", "Use", "build"]
