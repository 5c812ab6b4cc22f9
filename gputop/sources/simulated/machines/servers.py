"""Healthy servers: the training box of the first run, cluster nodes of any size, crowds."""

from __future__ import annotations

from gputop.sources.simulated.gpu import SimulatedInstance
from gputop.sources.simulated.machines.gpu_models import GPU_MODELS
from gputop.sources.simulated.machines.plan import MachinePlan, plan, uuid
from gputop.sources.simulated.machines.process_factory import DAY, HOUR, Restart, on
from gputop.sources.simulated.workloads import Batches, Idle, Leaking, Notebook, Serving, Training, Workload
from gputop.units import GIB, MIB


def dead_pid(
    made: MachinePlan, gpu: int, pid: int, mib: float, user: str, command: str, workers: int, ago: float
) -> None:
    """A process that was killed, whose memory its forked workers keep: NVML goes on listing the dead pid."""
    factory = made.factory
    shell = factory.shell(user, "ddp", ago + HOUR)
    dead = factory.run(user, command, on(gpu, Idle(mib)), parent=shell, pid=pid, ago=ago, rss=4.0, threads=60)
    for k in range(workers):
        factory.run(
            user, command, parent=dead, pid=pid + 166 + k, ago=ago - 40.0 - k, rss=1.1, cpu=0.0, threads=7,
            held_from=pid, name="python", executable=dead.executable,
        )  # fmt: skip
    factory.population.end(dead, -ago + 1.1 * HOUR, "SIGKILL")


def training_box(seed: int) -> MachinePlan:
    """The default: GPU 0 fills up, of GPU 1 a dead process holds a part."""
    made = plan([GPU_MODELS["h200"]] * 2, seed)
    factory, population = made.factory, made.population
    made.cpu_count, made.memory_bytes = 96, 256 * GIB

    loop = Training(0.0, seed + 3)
    factory.skip_to(41_832)
    train = factory.run(
        "ml", "python train.py --config configs/llama70b.yaml --tp 1 --micro-batch 2 --seq-len 8192 --lr 2e-5 "
        "--wandb-project llama70b-sft", on(0, Leaking(82_800.0, seed + 3, 1_229.0, training=loop)), ago=3.2 * HOUR,
        rss=12.1, cpu=104.0, threads=187, pid=41_832, job="88123",
    )  # fmt: skip
    factory.data_workers(train, 4, cpu=46.0)

    def full_after(work: Workload) -> float:
        return work.full_after(136_000.0) if isinstance(work, Leaking) else DAY

    def again(start: float) -> Workload:
        return Leaking(21_000.0, seed + 3, 1_229.0, since=start, training=loop)

    Restart(population, 20.0, again, lives=full_after).watch(train)
    factory.skip_to(44_210)
    factory.run(
        "bob", "/home/bob/venv/bin/python -m ipykernel_launcher -f "
        "/home/bob/.local/share/jupyter/runtime/kernel-9c1f.json", on(0, Notebook(2_900.0, seed + 11, every=150.0)),
        ago=26.0 * HOUR, rss=2.3, threads=31, name="python",
    )  # fmt: skip
    factory.run(
        "zhang", "python 推理/评测.py --模型 qwen3-8b --数据集 中文阅读理解",
        on(0, Batches(2_214.0, seed + 5, 9.0, 21.0, 0.3, 0.2, 0.3)), ago=0.7 * HOUR, rss=4.0, threads=44,
    )  # fmt: skip

    dead_pid(
        made, 1, 50_211, 38_912, "cv", "python ddp.py --world-size 4 --backbone vit-huge", workers=3, ago=9.7 * HOUR
    )
    factory.run(
        "cv", "python serve.py --port 8000 --model-path /data/models/vit-huge", on(1, Idle(82_022.0)), ago=9.66 * HOUR,
        rss=3.2, cpu=0.0, threads=52, pid=50_400,
    )  # fmt: skip
    factory.skip_to(51_118)
    factory.run(
        "alice", "vllm serve intfloat/e5-mistral-7b --task embed --gpu-memory-utilization 0.07",
        on(1, Serving(9_884.0, seed + 21, 0.75)), ago=2 * DAY, rss=6.8, cpu=118.0, rest=3.0, threads=96, name="vllm",
    )  # fmt: skip
    return made


def cluster_node(model_name: str, count: int, seed: int) -> MachinePlan:
    """A server of *count* GPUs: a big training over most of them; servers, notebooks and batch jobs on the others."""
    model = GPU_MODELS[model_name]
    made = plan([model] * count, seed, f"{model_name}-node-{seed % 40 + 7:02d}")
    factory, total = made.factory, float(model.memory_mib - model.reserved_mib)
    if count == 1:
        _shared(made, 0, total)
        return made
    wide = max(1, count * 5 // 8)
    nvlink = 0.42 if model.nvlinks else 0.0
    factory.torchrun(
        "ml", f"train.py --config configs/llama70b.yaml --fsdp {wide} --global-batch 1024 --grad-ckpt",
        range(wide), lambda rank: Training(total * 0.83 + 310.0 * (rank * 5 % 3), seed + 3, rank, nvlink=nvlink),
        ago=61.0 * HOUR, workers=2, job="91702",
    )  # fmt: skip
    serving = min(count - wide, max(1, count // 8))
    for gpu in range(wide, wide + serving):
        _inference(made, gpu, total)
    for k, gpu in enumerate(range(wide + serving, count)):
        (_shared if k % 2 == 0 else _fine_tuning)(made, gpu, total)
    if count >= 4:
        made.gpus[-2].hidden_bytes = int(total * 0.085) * MIB  # a container's, which the driver does not list here
    return made


def _inference(made: MachinePlan, gpu: int, total: float) -> None:
    """vLLM as a service, whose engine is started anew when it ends."""
    factory = made.factory
    main = factory.service(
        "vllm", "/opt/vllm/bin/python -m vllm.entrypoints.openai.api_server "
        "--model meta-llama/Llama-3.3-70B-Instruct-FP8 --quantization fp8 "
        "--max-model-len 32768 --gpu-memory-utilization 0.88 --enable-prefix-caching --port 8000",
        rss=5.1, cpu=40.0, rest=2.0, threads=71, name="vllm", ago=5 * DAY,
    )  # fmt: skip
    work = Serving(total * 0.88, made.seed + gpu * 13, 0.8)
    engine = factory.run(
        "vllm", "VLLM::EngineCore", on(gpu, work), parent=main, ago=5 * DAY - 20.0, rss=8.8, cpu=104.0, rest=2.0,
        threads=133, executable="/opt/vllm/bin/python", follows_parent=True,
    )  # fmt: skip
    Restart(made.population, 6.0, lambda start: work, always=True).watch(engine)


def _shared(made: MachinePlan, gpu: int, total: float) -> None:
    """Several people share this one: notebooks, a batch job, a small training that grows a little."""
    factory, seed, rng = made.factory, made.seed + gpu * 17, made.factory.rng
    hub = factory.service(
        "root", "/opt/jupyterhub/bin/python /opt/jupyterhub/bin/jupyterhub", rss=0.3, cpu=0.0, name="jupyterhub"
    )
    for user, share in (("bob", 0.035), ("carol", 0.11), ("yuki", 0.02)):
        kernel = f"/home/{user}/.local/share/jupyter/runtime/kernel-{rng.getrandbits(32):08x}.json"
        work = Notebook(612.0 + share * total, seed + len(user), every=100.0 + 40.0 * len(user))
        factory.run(
            user, f"/opt/conda/bin/python -m ipykernel_launcher -f {kernel}", on(gpu, work), parent=hub,
            ago=rng.uniform(2, 60) * HOUR, rss=2.1, threads=29, name="python",
        )  # fmt: skip
    factory.run(
        "speech", "python -m whisper.batch --model large-v3 --language auto --input /data/podcasts/2026-11 --workers 6",
        on(gpu, Batches(0.13 * total, seed + 2, 11.0, 6.0, 0.55, 0.3, 0.5)), ago=5.3 * HOUR, rss=4.4, cpu=160.0,
        threads=58,
    )  # fmt: skip
    loop = Training(0.0, seed + 4, step=1.4, intensity=0.7)
    small = Leaking(0.22 * total, seed + 4, 20.0, 120.0, 15.0, training=loop)
    factory.run(
        "zhang",
        "python 训练/微调.py --模型 qwen3-14b --学习率 1e-5",
        on(gpu, small),
        ago=1.4 * HOUR,
        rss=9.7,
        threads=88,
    )


def _fine_tuning(made: MachinePlan, gpu: int, total: float) -> None:
    factory, seed = made.factory, made.seed + gpu * 19
    run = factory.run(
        "nlp", "python -m axolotl.cli.train examples/mistral-lora.yml --deepspeed zero2.json --output-dir "
        "/scratch/nlp/experiments/2026-11-28/mistral-lora-r64-alpha128-dropout0.05-lr2e-4-cosine-warmup0.03-seed42/"
        "checkpoints --resume-from-checkpoint latest --gradient-accumulation-steps 8 --eval-steps 250",
        on(gpu, Training(0.58 * total, seed + 2, step=1.1, checkpoint_every=140.0, checkpoint_takes=4.0)),
        ago=7.6 * HOUR, rss=14.2, threads=141, job="91855",
    )  # fmt: skip
    factory.data_workers(run, 2)
    factory.service(
        "triton", "tritonserver --model-repository=/models --http-port=8100 --metrics-port=8102",
        on(gpu, Serving(0.09 * total, seed + 7, 0.4)), rss=3.3, cpu=70.0, threads=64,
        cgroup=f"/system.slice/docker-{seed * 7919 + 0x3FA9C81D02AB:0<64x}.scope",
    )  # fmt: skip
    factory.run(
        "olamide", "python eval_harness.py --tasks mmlu,gsm8k,arc --limit 500", on(gpu, Idle(0.04 * total)),
        ago=31.0 * HOUR, rss=1.9, cpu=0.0, threads=33, stopped=True,
    )  # fmt: skip
    factory.run(
        "dmitri", "./gmx mdrun -deffnm npt -nb gpu -ntomp 16",
        on(gpu, Batches(0.01 * total + 400, seed + 9, 50.0, 1.0, 0.3, 0.0, 0.25)), ago=19.0 * HOUR, rss=0.9, cpu=1480.0,
        threads=18, ignores_term=True,
    )  # fmt: skip


def instances(seed: int) -> MachinePlan:
    """Two H200, the first of them split into three MIG instances."""
    made = plan([GPU_MODELS["h200"]] * 2, seed)
    factory, rng = made.factory, made.factory.rng
    made.gpus[0].instances = (
        SimulatedInstance(1, "3g.71gb", 71_424, uuid("MIG", rng)),
        SimulatedInstance(5, "2g.35gb", 35_584, uuid("MIG", rng)),
        SimulatedInstance(9, "1g.18gb", 17_792, uuid("MIG", rng)),
    )

    def inside(instance: int, user: str, command: str, work: Workload, hours: float, cpu: float = 100.0) -> None:
        factory.run(user, command, on(0, work, instance=instance), ago=hours * HOUR, rss=4.0, cpu=cpu)

    inside(1, "ml", "python train.py --config small.yaml", Training(52_000.0, seed + 1, intensity=0.42), 4)
    inside(5, "alice", "vllm serve qwen3-8b --port 8001", Serving(28_700.0, seed + 2, 0.8), 49)
    inside(9, "bob", "python -m ipykernel_launcher -f kernel-71.json", Notebook(4_100.0, seed + 3, every=60.0), 9)
    inside(9, "carol", "python -m ipykernel_launcher -f kernel-2c.json", Idle(2_300.0), 30, cpu=0.0)
    factory.run("cv", "python train.py --model dino", on(1, Training(101_000.0, seed + 4)), ago=11 * HOUR, rss=9.0)
    return made


def crowd(count: int, each: int, seed: int) -> MachinePlan:
    """Small jobs of a dozen people on *count* GPUs, *each* processes on every one, most of them at rest."""
    made = plan([GPU_MODELS["h200"]] * count, seed, "crowded")
    made.cpu_count = 256
    factory, rng = made.factory, made.factory.rng
    users = ("ml", "cv", "nlp", "alice", "bob", "carol", "dmitri", "emre", "yuki", "speech", "zhang", "olamide")
    scripts = ("train.py", "eval.py", "sweep_agent.py", "rollout.py", "embed.py", "infer.py")
    mean_mib = 130_000.0 / each
    for k in range(count * each):
        mib, one = mean_mib * rng.uniform(0.4, 1.3), seed + k
        work: Workload = Idle(mib)
        if k % 11 == 0:
            work = Training(mib, one, step=rng.uniform(0.7, 4.0), intensity=0.3)
        elif k % 7 == 0:
            work = Serving(mib, one, 0.3)
        elif k % 3 == 0:
            work = Notebook(mib, one)
        factory.run(
            rng.choice(users), f"python {rng.choice(scripts)} --shard {k} --of {count * each}", on(k % count, work),
            ago=rng.uniform(0.02, 90) * HOUR, rss=rng.uniform(0.6, 3.0), cpu=0.0 if isinstance(work, Idle) else 95.0,
            threads=rng.randrange(8, 90),
        )  # fmt: skip
    return made
