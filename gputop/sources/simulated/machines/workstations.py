"""Desktop machines: a laptop, a workstation, a DGX Spark."""

from __future__ import annotations

from gputop.sources.simulated.gpu import SimulatedFault
from gputop.sources.simulated.machines.gpu_models import GPU_MODELS
from gputop.sources.simulated.machines.plan import MachinePlan, plan
from gputop.sources.simulated.machines.process_factory import DAY, HOUR, on
from gputop.sources.simulated.workloads import Batches, Desktop, Notebook, Serving, Training, Transcoding
from gputop.units import GIB, MIB


def _desktop(made: MachinePlan, user: str) -> None:
    """Xorg, GNOME and a browser on GPU 0."""
    factory, seed = made.factory, made.seed
    made.gpus[0].display = True
    login = factory.service("root", "/usr/sbin/gdm3", rss=0.02, cpu=0.0, ago=2 * DAY, name="gdm3", threads=4)
    factory.run(
        "root", "/usr/lib/xorg/Xorg vt2 -displayfd 3 -auth /run/user/1003/gdm/Xauthority "
        "-nolisten tcp -background none -noreset -keeptty -verbose 3", on(0, Desktop(286.0, seed), "G"), parent=login,
        ago=2 * DAY, rss=0.2, cpu=20.0, rest=1.0, threads=14,
    )  # fmt: skip
    shell = factory.run(
        user, "/usr/bin/gnome-shell", on(0, Desktop(164.0, seed + 1), "G"), parent=login, ago=2 * DAY - 30, rss=0.5,
        cpu=40.0, rest=2.0, threads=22,
    )  # fmt: skip
    factory.run(
        user, "/usr/lib/firefox/firefox", on(0, Desktop(233.0, seed + 2, 0.25), "G"), parent=shell, ago=7 * HOUR,
        rss=1.4, cpu=90.0, rest=3.0, threads=140,
    )  # fmt: skip


def laptop(seed: int) -> MachinePlan:
    """A desktop and Blender on a GPU without a power limit to read, and a second one that sleeps most of the time."""
    made = plan([GPU_MODELS["4090laptop"], GPU_MODELS["2000adalaptop"]], seed, "thinker")
    made.memory_bytes = 64 * GIB
    factory = made.factory
    _desktop(made, "alice")
    render = Batches(6_850.0, seed + 4, 21.0, 5.0, 0.9, 0.05, 0.5, scratch_mib=900.0)
    factory.run(
        "alice", "/opt/blender/blender -b lighthouse.blend -E CYCLES -a", on(0, render, "C+G"), ago=0.6 * HOUR, rss=5.5,
        cpu=140.0, threads=70,
    )  # fmt: skip
    factory.run(
        "alice", "python sample.py --steps 30 --prompt 'a lighthouse at dawn, oil on canvas'",
        on(0, Batches(3_120.0, seed + 5, 8.0, 31.0)), ago=0.2 * HOUR, rss=3.5,
    )  # fmt: skip
    for gpu in made.gpus:
        gpu.persistence = False
    made.gpus[1].fault = SimulatedFault(sleeps=(45.0, 15.0))
    return made


def workstation(seed: int) -> MachinePlan:
    """Two cards with fans: a desktop, ComfyUI and two video encoders on one, a training on the other."""
    made = plan([GPU_MODELS["4090"], GPU_MODELS["6000ada"]], seed, "studio")
    factory = made.factory
    _desktop(made, "carol")
    media = factory.service("root", "/usr/lib/plexmediaserver/Plex", rss=0.4, cpu=5.0, rest=1.0, threads=30)
    factory.run(
        "root", "/usr/lib/plexmediaserver/Plex-Transcoder -codec:0 h264 -i /media/film.mkv -f dash manifest.mpd",
        on(0, Transcoding(311.0, seed + 2, 0.2, 0.3)), parent=media, ago=0.4 * HOUR, rss=0.3, cpu=30.0, threads=12,
    )  # fmt: skip
    factory.run(
        "carol", "ffmpeg -hwaccel cuda -i rushes/A012_C004.mov -c:v hevc_nvenc -preset p6 -b:v 40M out/A012_C004.mp4",
        on(0, Transcoding(742.0, seed + 1)), ago=0.5 * HOUR, rss=0.8, cpu=85.0, threads=41,
    )  # fmt: skip
    factory.run(
        "carol", "/opt/ComfyUI/venv/bin/python main.py --listen",
        on(0, Batches(13_900.0, seed + 3, 12.0, 9.0, 0.92, 0.6, 0.6, scratch_mib=2_100.0)), ago=9 * HOUR, rss=6.4,
    )  # fmt: skip
    factory.run(
        "carol", "python train_lora.py --rank 32 --resolution 1024",
        on(1, Training(37_800.0, seed + 5, step=1.3, checkpoint_every=160.0)), ago=3 * HOUR, rss=8.2,
    )  # fmt: skip
    return made


def spark(seed: int) -> MachinePlan:
    """A GB10: the GPU's memory is the host's."""
    made = plan([GPU_MODELS["gb10"]], seed, "spark-7f3c")
    made.cpu_count, made.memory_bytes, made.memory_base_bytes = 20, GPU_MODELS["gb10"].memory_mib * MIB, 6 * GIB
    factory = made.factory
    factory.run(
        "alice", "/opt/llama.cpp/llama-server -m gpt-oss-120b-mxfp4.gguf -c 65536 -ngl 99",
        on(0, Serving(63_400.0, seed + 1, 0.8)), ago=1.2 * DAY, rss=2.0,
    )  # fmt: skip
    factory.run(
        "alice", "python -m ipykernel_launcher -f kernel-0a.json", on(0, Notebook(2_900.0, seed + 2)), ago=5 * HOUR
    )
    return made
