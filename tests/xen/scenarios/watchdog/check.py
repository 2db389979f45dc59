#!/usr/bin/env python3
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
from xencheck import main, need, scenario  # noqa: E402


@scenario('watchdog/doctor-names-the-watchdog')
def _(carried):
    carried.doctor_names('watchdog', 'watchdog')


if __name__ == '__main__':
    main()
