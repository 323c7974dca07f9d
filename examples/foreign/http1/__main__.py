"""``python -m foreign.http1 PORT`` tells each client its own request."""

import asyncio
import sys

from foreign.http1.server import serve

asyncio.run(serve(lambda asked: (200, f"{asked}\n".encode()), int(sys.argv[1])))
