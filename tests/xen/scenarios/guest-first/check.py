#!/usr/bin/env python3
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
from xencheck import main, need, scenario  # noqa: E402


@scenario('guest-first/hv-where-all-is-refused')
def _(carried):
    carried.expect_pmu('boot', '0x0', 'self')
    carried.succeeded('guest-create', 'start')
    need(carried.pmu('started')[1] == 'hv', f'the mode is {carried.pmu("started")[1]}, not hv')


@scenario('guest-first/log-and-status-say-why-and-what-to-do')
def _(carried):
    carried.succeeded('status', 'status-json')
    log = '\n'.join(carried.journal('xenprofd'))
    for what, text in ('the log', log), ('status', carried.text('status.out')), ('status --json',
                                                                              carried.text('status-json.out')):
        for word in 'guest1', 'xenprofd-vpmu-boot':
            need(word in text, f'{what} does not name {word}')
        need('hv' in text, f'{what} does not name mode hv')


@scenario('guest-first/nothing-else-fails')
def _(carried):
    carried.succeeded('five-snapshot', 'five-folded', 'five-report', 'active')
    chunk = carried.chunk('five.xenprof')
    need(chunk.vpmu == 'hv', f'the chunk says vPMU {chunk.vpmu!r}')
    origins = chunk.origins()
    need(origins['dom0_user'] and origins['dom0_kernel'] and origins['xen_for_dom0'], f'origins are {dict(origins)}')
    carried.succeeded('guest-destroy', 'stop')
    carried.expect_pmu('stopped', '0x0', 'self')


@scenario('guest-first/doctor-names-the-guest')
def _(carried):
    carried.doctor_names('mode_all', 'guest1', 'xenprofd-vpmu-boot.service')
    carried.expect_pmu('doctored', '0x0', 'self')


if __name__ == '__main__':
    main()
