#!/usr/bin/env python3
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
from xencheck import main, need, scenario  # noqa: E402


@scenario('unpinned/boot-unit-has-set-the-mode-before-guests')
def _(carried):
    carried.expect_pmu('boot', '0x8', 'all')
    order = carried.text('boot-unit-order.out')
    need('Result=success' in order, order)
    before = next(line for line in order.splitlines() if line.startswith('Before='))
    need('xendomains.service' in before, f'the unit is not ordered before guests: {before}')


@scenario('unpinned/doctor-names-the-pinning')
def _(carried):
    carried.doctor_names('pinning', 'dom0_vcpus_pin')
    need(carried.pmu('doctored') == carried.pmu('boot'), f'doctor changed the vPMU to {carried.pmu("doctored")}')


if __name__ == '__main__':
    main()
