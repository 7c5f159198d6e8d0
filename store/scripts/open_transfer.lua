-- open_transfer: begin a stream of chunks.
-- KEYS  root of the sandboxes
-- ARGV  id:text  kept:int ms after which an unused stream expires
-- Returns  missing
-- Cost  O(1)
-- Idempotent  by id
-- Kept  not proven: chunks need not survive a crash of Redis
-- Brings  bytes
-- include: _transfer.lua
redis.call('HSETNX', root .. ':transfer:' .. id, 'first', 0)
redis.call('HSETNX', root .. ':transfer:' .. id, 'next', 0)
keep(id, kept)
