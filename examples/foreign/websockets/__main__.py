"""``python -m foreign.websockets PORT`` sends back what it receives."""

import asyncio
import sys

from foreign.websockets.echo import serve

asyncio.run(serve(int(sys.argv[1])))
