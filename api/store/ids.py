"""Ids that sort by the time they were made."""

import secrets
import time
import uuid


def new_id() -> str:
    """A UUID of version 7 (RFC 9562, section 5.7): milliseconds, then random bits."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds << 80) | secrets.randbits(80)
    value = value & ~(0xF << 76) | (0x7 << 76)
    value = value & ~(0x3 << 62) | (0x2 << 62)
    return str(uuid.UUID(int=value))
