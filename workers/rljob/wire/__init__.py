"""The wire: checked messages, sockets that neither block nor drop silently, and flow control by credits."""

from rljob.wire.credits import CreditLedger, CreditWindow, Verdict
from rljob.wire.errors import MalformedMessage
from rljob.wire.keyfile import RoleKeys, load_keys, write_keys
from rljob.wire.message import Header, Limits, Message, RawMessage, decode, decode_header, encode
from rljob.wire.notices import Publisher, Subscriber
from rljob.wire.security import ClientSecurity, KeyPair, SecurityProblem, ServerSecurity, generate_keys
from rljob.wire.sockets import Client, Server
from rljob.wire.zap import refused_total as refused_handshakes_total

__all__ = [
    "Client",
    "ClientSecurity",
    "CreditLedger",
    "CreditWindow",
    "Header",
    "KeyPair",
    "Limits",
    "MalformedMessage",
    "Message",
    "Publisher",
    "RawMessage",
    "RoleKeys",
    "SecurityProblem",
    "Server",
    "ServerSecurity",
    "Subscriber",
    "Verdict",
    "decode",
    "decode_header",
    "encode",
    "generate_keys",
    "load_keys",
    "refused_handshakes_total",
    "write_keys",
]
