"""An engine's publisher of KV events on libzmq, in the shape of vLLM's: PUB, and ROUTER for replays.

    publisher.py PUBLISH REPLAY [TOPIC]      endpoints; "-" for no replay, "connect:…" to connect

Prints "ready", the two ports and then a line for each command that it reads: the number of batches
it has made so far. The commands, each with a count:

    publish   makes batches with a block each and publishes them
    drop      does not publish them, though a replay has them
    lose      does neither
    clear     publishes that the cache was cleared
    garble    publishes what is no batch
    silence   leaves so many questions for a replay unanswered
    rank      says from now on that it is of this rank
    exit
"""

import os
import select
import struct
import sys
import time
from collections import deque

import zmq

END = (-1).to_bytes(8, "big", signed=True)


def pack(value):
    """As msgpack."""
    if value is None:
        return b"\xc0"
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, int):
        return b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, str):
        return b"\xd9" + bytes([len(value)]) + value.encode()
    if isinstance(value, list):
        return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(pack, value))
    return b"\xde" + struct.pack(">H", len(value)) + b"".join(
        pack(key) + pack(item) for key, item in value.items()
    )


class Publisher:
    def __init__(self, publish, replay, topic):
        context = zmq.Context()
        self.publisher = context.socket(zmq.PUB)
        self.publisher.set_hwm(100_000)
        self.replays = None
        if publish.startswith("connect:"):
            self.publisher.connect(publish.removeprefix("connect:"))
        else:
            self.publisher.bind(publish)
        if replay != "-":
            self.replays = context.socket(zmq.ROUTER)
            self.replays.bind(replay)
        self.topic = topic.encode()
        self.kept = deque(maxlen=10_000)
        self.seq = 0
        self.silence = 0
        self.rank = 0
        self.base = int.from_bytes(os.urandom(6), "big")

    def stored(self):
        tokens = [self.seq * 4 + n for n in range(4)]
        event = {
            "type": "BlockStored",
            "block_hashes": [self.base + self.seq],
            "parent_block_hash": None,
            "token_ids": tokens,
            "block_size": 4,
            "lora_id": None,
            "medium": "GPU",
        }
        return pack([time.time(), [event], self.rank])

    def make(self, command, count):
        for _ in range(count):
            payload = self.stored()
            if command == "clear":
                payload = pack([time.time(), [{"type": "AllBlocksCleared"}], self.rank])
            if command == "garble":
                payload = b"\x93garbled"
            seq = self.seq.to_bytes(8, "big")
            if command != "lose":
                self.kept.append((self.seq, payload))
            if command not in ("drop", "lose"):
                self.publisher.send_multipart((self.topic, seq, payload))
            self.seq += 1

    def answer(self):
        client, _, start = self.replays.recv_multipart()
        if self.silence:
            self.silence -= 1
            return
        for seq, payload in self.kept:
            if seq >= int.from_bytes(start, "big"):
                frames = (client, b"", self.topic, seq.to_bytes(8, "big"), payload)
                self.replays.send_multipart(frames)
        self.replays.send_multipart((client, b"", b"", END, b""))

    def run(self):
        port = lambda socket: socket.last_endpoint.decode().rsplit(":", 1)[-1]
        print("ready", port(self.publisher), port(self.replays) if self.replays else 0, flush=True)
        while True:
            if self.replays and self.replays.poll(0):
                self.answer()
            if select.select([sys.stdin], [], [], 0.01)[0]:
                # Unbuffered, so that what select sees is all that there is.
                command, _, count = os.read(0, 64).decode().strip().partition(" ")
                if command in ("", "exit"):
                    return
                if command == "silence":
                    self.silence = int(count)
                elif command == "rank":
                    self.rank = int(count)
                else:
                    self.make(command, int(count))
                print(self.seq, flush=True)


Publisher(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "kv-events").run()
