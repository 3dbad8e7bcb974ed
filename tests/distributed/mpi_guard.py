"""Stands between mpiexec and a process that may be killed, and stays until all have written down how they ended.

MPICH's mpiexec kills all processes as soon as it sees that one was killed. Other launchers leave that to the processes,
which is what is tested.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 60.0


def main() -> None:
    module, folder, *rest = sys.argv[1:]
    connection = [int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else []  # to mpiexec
    command = [sys.executable, "-m", module, folder, *rest]
    subprocess.run(command, check=False, pass_fds=connection, start_new_session=True)
    Path(folder, f"ended{os.getpid()}").touch()
    begin = time.monotonic()
    while len(list(Path(folder).glob("ended*"))) < int(os.environ["PMI_SIZE"]) and time.monotonic() - begin < LIMIT:
        time.sleep(0.02)


if __name__ == "__main__":
    main()
