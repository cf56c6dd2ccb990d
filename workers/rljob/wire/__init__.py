"""The wire: checked messages, sockets that neither block nor drop silently, and flow control by credits.

Each name's module is imported when the name is first asked for: a controller that only makes keys (`security`)
then needs neither numpy nor LZ4, which a base install of rljob does not bring.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rljob.wire.credits import CreditCheck, CreditLedger, CreditWindow
    from rljob.wire.errors import MalformedMessage
    from rljob.wire.message import Header, Message, MessageLimits, RawMessage, decode, decode_header, encode
    from rljob.wire.notices import Publisher, Subscriber
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
    from rljob.wire.sockets import Client, Server
    from rljob.wire.zap import refused_handshakes_total

__all__ = [
    "Client",
    "ClientSecurity",
    "CreditCheck",
    "CreditLedger",
    "CreditWindow",
    "Header",
    "KeyPair",
    "MalformedMessage",
    "Message",
    "MessageLimits",
    "Publisher",
    "RawMessage",
    "RoleKeys",
    "SecurityProblem",
    "Server",
    "ServerSecurity",
    "Subscriber",
    "decode",
    "decode_header",
    "encode",
    "generate_keys",
    "load_keys",
    "refused_handshakes_total",
    "write_keys",
]

_MODULES: Final = {
    "credits": ("CreditLedger", "CreditWindow", "CreditCheck"),
    "errors": ("MalformedMessage",),
    "message": ("Header", "MessageLimits", "Message", "RawMessage", "decode", "decode_header", "encode"),
    "notices": ("Publisher", "Subscriber"),
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
    "sockets": ("Client", "Server"),
    "zap": ("refused_handshakes_total",),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value  # the next look finds it without coming here
    return value
