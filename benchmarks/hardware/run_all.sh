#!/usr/bin/env bash
# Everything in turns under the load, within TOTAL seconds: gputop beside nvidia-smi, keys, kills, cost, links, an Xid.
# $OUT gets log.txt, screens.txt and all.tar.gz (every reading, screens with their colours, what nvidia-smi says).
#   run_all.sh [--rehearsal]        --rehearsal: the load runs already, short windows (see rehearse.py)
set -u
cd "$(dirname "$0")"
RESULTS=${OUT:-$PWD/../../.cache/hardware}
TOTAL=${TOTAL:-525}
PYTHON=${PYTHON:-python3}
mkdir -p "$RESULTS"
OUT=$(mktemp -d /tmp/gputop-hardware.XXXXXX)
export OUT PYTHONUNBUFFERED=1
# A program that uses NVLink multicast can put shared GPUs out of service.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
quick=; [ "${1:-}" = --rehearsal ] && quick=yes
chmod +x ../../.nvtop/nvtop ../../.nvtop/lib/ld-linux* 2> /dev/null
steps=()

pack() {
    [ -d "$OUT/screens" ] && (cd "$OUT/screens" && for file in */*.txt; do echo "=== $file"; cat "$file"; done) > "$RESULTS/screens.txt"
    tar -czf "$RESULTS/all.tar.gz" -C "$OUT" .
}

step() { # step NAME SECONDS COMMAND...: no longer than SECONDS, nor than what is left of TOTAL
    local name=$1 limit=$2 began=$SECONDS left status
    shift 2
    left=$((TOTAL - SECONDS))
    [ "$left" -lt "$limit" ] && limit=$left
    if [ "$limit" -lt 5 ]; then steps+=("NOT RUN  $name: no time left"); return; fi
    echo; echo "######## $name (at $began s, at most $limit s)"
    timeout -k 5 "$limit" "$@"
    status=$?
    steps+=("$([ $status = 0 ] && echo "ok      " || echo "exit $(printf %3d $status)") $name: $((SECONDS - began)) s")
    pack
}

main() {
    step machine 20 bash -c 'uname -r; nproc; "$0" --version; nvidia-smi -L; nvidia-smi topo -m
        nvidia-smi -q > $OUT/nvidia-smi-q.txt; nvidia-smi nvlink -s > $OUT/nvlink.txt; true' "$PYTHON"
    if [ -z "$quick" ]; then
        export GPUTOP_LOAD=$OUT/load.json
        "$PYTHON" load.py --seconds "$TOTAL" --wait 120 2> "$OUT/load.err" &
        load=$!
        trap 'kill $load 2> /dev/null' EXIT
        step "load gets ready" 130 bash -c "until [ -e $OUT/load.json ] || ! kill -0 $load 2> /dev/null; do sleep 0.3; done; [ -e $OUT/load.json ]"
        tail -n 15 "$OUT/load.err"
    fi
    gpus=$("$PYTHON" -c 'import machine, json; print(json.loads(machine.LOAD.read_text())["gpus"])')

    step "one table" 30 env PYTHONPATH="$PWD/../..:${PYTHONPATH:-}" "$PYTHON" -m gputop --once
    step "beside nvidia-smi" 75 "$PYTHON" against_nvidia_smi.py --pairs "$([ $quick ] && echo 4 || echo 30)"
    step "keys and sizes" 60 "$PYTHON" keys_and_kill.py --only keys
    step "kill the 20 GiB process" 50 "$PYTHON" keys_and_kill.py --only kill --role big
    step "links and GPM" 40 "$PYTHON" links_and_events.py --seconds "$([ $quick ] && echo 3 || echo 8)"
    step "NVML calls" 40 "$PYTHON" nvml_calls.py --times "$([ $quick ] && echo 3 || echo 25)"
    step "cost" 260 "$PYTHON" cost.py --seconds "$([ $quick ] && echo 4 || echo 16)" --presses "$([ $quick ] && echo 6 || echo 20)"
    [ "$gpus" -gt 1 ] && step "kill a rank" 45 "$PYTHON" keys_and_kill.py --only kill --role rank --gpu 1
    [ -z "$quick" ] && step "an Xid" 45 "$PYTHON" links_and_events.py --xid

    kill "${load:-}" 2> /dev/null && wait "$load" 2> /dev/null
    sleep 0.5 # for tee
    pack
    echo; echo "######## steps ($SECONDS s in all)"
    printf '%s\n' "${steps[@]}"
    grep -hE "^(FAIL|Traceback|[A-Za-z]*Error)|TOO FAR" "$RESULTS/log.txt" | sort | uniq -c
    ! printf '%s\n' "${steps[@]}" | grep -qv '^ok'
}

set -o pipefail
main 2>&1 | tee "$RESULTS/log.txt"
