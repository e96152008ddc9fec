"""test_storm.py - prompts that storm in beside running streams: the scenario of tools/bench_storm.py, small and with wide bounds."""
import os
import sys

import lib

sys.path.insert(0, os.path.join(lib.ROOT, 'tools'))
import bench_storm  # noqa: E402


def test_a_storm_of_prompts_stalls_running_streams_far_less_than_prefill_first_does():
    """Plain kernels on one thread are slow enough for the storm to arrive in time. On an idle machine the longest gap is 25 ms instead of 1.6 s; a
    quarter is asked for in one of four storms, so that a loaded one passes: one stall of the machine is a gap, too. The storm's own first tokens come 1.3 times as late there."""
    lib.need_data()
    n_storm, stream_len = (10, 300) if lib.SLOW == 1 else (2, 80)
    for _ in range(4):
        r = bench_storm.compare(lib.STORIES, 1, streams=8, stream_len=stream_len, n_storm=n_storm, storm_len=440, ways=('prefill-first', 'default'),
                                flags=['--isa', 'ref', '--threads', '1', '--itl-goal', '10ms'])
        for way, figures in r.items():
            print(f'     {way}: ' + ', '.join(f'{k} {v:.1f} ms' for k, v in figures.items()))
        first, ours = r['prefill-first'], r['default']
        if ours['itl_max'] < first['itl_max'] / 4 and ours['ttft_p99'] < first['ttft_p99'] * 4:
            return
    raise AssertionError((ours, first))


if __name__ == '__main__':
    lib.main(globals())
