"""The API server: where it is, its verbs, its refusals as types, its kinds, a copy of all objects of a kind."""
