-- open_transfer: begin a stream of chunks.
-- KEYS  root of the sandboxes
-- ARGV  id:text  kept:int ms for which Redis keeps the stream without a call
-- Returns  missing
-- Cost  O(1)
-- Idempotent  by id
-- Kept  not proven: neither the file of Redis nor its replicas get a chunk
-- Brings  bytes
-- include: _transfer.lua
redis.call('HSETNX', root .. ':transfer:' .. id, 'first', 0)
redis.call('HSETNX', root .. ':transfer:' .. id, 'next', 0)
keep(id, kept)
