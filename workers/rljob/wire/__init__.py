"""The wire: checked messages, sockets that neither block nor drop silently, and flow control by credits.

Each name's module is imported when the name is first asked for: a controller that only makes keys (`security`)
then needs neither numpy nor LZ4, which a base install of rljob does not bring.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rljob.wire.credits import CreditCheck, CreditLedger, CreditWindow
    from rljob.wire.errors import MalformedMessage
    from rljob.wire.message import (
        Message,
        MessageLimits,
        Part,
        RawMessage,
        decode,
        decode_header,
        encode,
        packed,
        unpacked,
    )
    from rljob.wire.schema import CODES, DRAWN, Scalar, drawn_column, drawn_of
    from rljob.wire.security import (
        ClientSecurity,
        KeyPair,
        RoleKeys,
        SecurityProblem,
        ServerSecurity,
        generate_keys,
        load_keys,
        write_keys,
    )
    from rljob.wire.sockets import Client, Publisher, Server, Subscriber
    from rljob.wire.transport import Socket, refused_handshakes_total

__all__ = [
    "CODES",
    "DRAWN",
    "Client",
    "ClientSecurity",
    "CreditCheck",
    "CreditLedger",
    "CreditWindow",
    "KeyPair",
    "MalformedMessage",
    "Message",
    "MessageLimits",
    "Part",
    "Publisher",
    "RawMessage",
    "RoleKeys",
    "Scalar",
    "SecurityProblem",
    "Server",
    "ServerSecurity",
    "Socket",
    "Subscriber",
    "decode",
    "decode_header",
    "drawn_column",
    "drawn_of",
    "encode",
    "generate_keys",
    "load_keys",
    "packed",
    "refused_handshakes_total",
    "unpacked",
    "write_keys",
]

_MODULES: Final = {
    "credits": ("CreditLedger", "CreditWindow", "CreditCheck"),
    "errors": ("MalformedMessage",),
    "message": (
        "Message",
        "MessageLimits",
        "Part",
        "RawMessage",
        "decode",
        "decode_header",
        "encode",
        "packed",
        "unpacked",
    ),
    "schema": ("CODES", "DRAWN", "Scalar", "drawn_column", "drawn_of"),
    "security": (
        "ClientSecurity",
        "KeyPair",
        "RoleKeys",
        "SecurityProblem",
        "ServerSecurity",
        "generate_keys",
        "load_keys",
        "write_keys",
    ),
    "sockets": ("Client", "Publisher", "Server", "Subscriber"),
    "transport": ("Socket", "refused_handshakes_total"),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The next look finds it without coming here.
    globals()[name] = value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value
