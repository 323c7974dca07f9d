"""``python -m foreign.websockets PORT`` sends back all messages."""

import asyncio
import sys

from foreign.websockets.echo import serve

asyncio.run(serve(int(sys.argv[1])))
