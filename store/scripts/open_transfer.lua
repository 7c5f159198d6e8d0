-- open_transfer: begin a stream of chunks.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id   2 ms that it is kept without a call
-- Returns  1
-- Cost  O(1)
-- Idempotent  by id
-- Kept  not proven: neither the file of Redis nor its replicas get a chunk
-- Brings  bytes
-- include: _transfer.lua
redis.call('HSETNX', root .. ':transfer:' .. id, 'first', 0)
redis.call('HSETNX', root .. ':transfer:' .. id, 'next', 0)
keep(ARGV[2])
return 1
