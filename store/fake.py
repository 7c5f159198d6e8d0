"""fakeredis as a server of its own on loopback, so that all workers share it:  python -m store.fake PORT"""

import sys

from fakeredis import TcpFakeServer

if __name__ == "__main__":
    TcpFakeServer(("127.0.0.1", int(sys.argv[1]))).serve_forever()
