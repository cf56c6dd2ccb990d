"""A real S3 server for the tests of this folder."""

from tests.support.s3_server import s3

__all__ = ["s3"]
