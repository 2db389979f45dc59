#!/usr/bin/env python3
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
from xencheck import main, need, scenario  # noqa: E402


@scenario('vpmu-off/collection-goes-on-by-cpu-clock')
def _(carried):
    need('not supported' in ' '.join(carried.pmu('boot')), f'the files read {carried.pmu("boot")}')
    carried.succeeded('start', 'status', 'five-snapshot', 'five-folded', 'five-report', 'stop')
    chunk = carried.chunk('five.xenprof')
    need(chunk.mode == 'dom0 only', f'the mode is {chunk.mode}: {chunk.mode_reason}')
    need(len(chunk.samples) >= 250, f'only {len(chunk.samples)} samples')
    need('vpmu' in carried.text('status.out'), 'status does not name the option vpmu')
    need(not carried.text('failed.out').strip(), f'failed units: {carried.text("failed.out").strip()}')


@scenario('vpmu-off/doctor-names-the-option')
def _(carried):
    carried.doctor_names('vpmu', 'vpmu=off', 'vpmu=on')


if __name__ == '__main__':
    main()
