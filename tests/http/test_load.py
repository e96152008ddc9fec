"""Many concurrent streams with every byte checked. 200 streams by default; QUIRE_FULL=1 runs the whole 1,000 x 40 events/s."""
import json
import os
import resource
import subprocess
import sys

from lib import Server, run_tests

SCRIPT = "abcdfgjklmpsuvwxyzABCDEFGHIJKLMNOPQRSUVWXYZ0123456789"


def load(streams, rate, tokens):
    client = os.path.join(os.path.dirname(sys.argv[1]), "stream_client")
    with Server("--mock-rate", str(rate), "--mock-running", str(streams), "--mock-script", SCRIPT, "--mock-events", "8192") as s:
        r = subprocess.run([client, str(s.port), str(streams), str(tokens), SCRIPT], capture_output=True, text=True, timeout=250)
        s.stop()
    assert r.returncode == 0, (r.stdout, r.stderr)
    seen = json.loads(r.stdout)
    assert seen["wrong"] == 0 and seen["events"] == streams * tokens and s.ledger["length"] == streams, (seen, s.ledger)
    share = s.ledger["loop_cpu_s"] / seen["seconds"]
    print("   %d streams, %d events in %.2f s = %.0f events/s; loop thread %.3f s = %.1f %% of a core, %.1f us per event; largest gap %.0f ms"
          % (streams, seen["events"], seen["seconds"], seen["events"] / seen["seconds"], s.ledger["loop_cpu_s"], 100 * share,
             1e6 * s.ledger["loop_cpu_s"] / seen["events"], seen["largest_gap_ms"]))
    return share


def test_concurrent_streams_lose_and_reorder_nothing():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 8192, hard))
    if os.environ.get("QUIRE_FULL"):
        load(1000, 40, 400)
    else:
        load(200, 40, 80)


def test_streams_without_a_pause_lose_nothing_either():
    load(50, 0, 400)


if __name__ == "__main__":
    run_tests(globals())
