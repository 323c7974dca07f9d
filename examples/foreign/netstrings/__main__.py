"""``python -m foreign.netstrings PORT`` is a chat room."""

import asyncio
import sys

from foreign.netstrings.room import Room

asyncio.run(Room().serve(int(sys.argv[1])))
