"""A process whose imports are done and that forks the ranks of trials: half a second, not ten.

It listens on a socket file, one trial folder a line, and ends when it was idle for long. It must
never touch a GPU: a fork after that is not allowed, so GPU trials start cold.
"""

import os
import socket
import sys
from pathlib import Path

IDLE_S = 300.0


def serve(path: Path, idle_s: float = IDLE_S) -> None:
    """Forks a supervisor for each folder that comes in."""
    from trials.worker import prepare_imports

    prepare_imports()
    import trials.engines
    import trials.measure
    import trials.model.stages
    import trials.probe  # noqa: F401

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(idle_s)
        while True:
            try:
                connection, _ = server.accept()
            except TimeoutError:
                path.unlink(missing_ok=True)
                return
            with connection:
                folder = connection.recv(4096).decode().strip()
                if folder == "stop":
                    path.unlink(missing_ok=True)
                    return
                pid = _fork_supervisor(Path(folder), server)
                connection.sendall(f"{pid}\n".encode())


def _fork_supervisor(folder: Path, server: socket.socket) -> int:
    """A grandchild, so that nobody here has to wait for it; returns its process id."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        grandchild = os.fork()
        if grandchild:
            os.write(write, str(grandchild).encode())
            os._exit(0)
        code = 1
        try:
            server.close()
            os.close(write)  # whoever waits for this id must see the pipe's end
            os.setpgid(0, 0)
            from trials.executors.supervise import start_forked, supervise

            supervise(folder, start_forked)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        return int(pipe.read() or 0)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
