-- close_transfer: record how a side ended a stream, unless it has done so already.
-- Chunks that were not received are removed.
-- KEYS  root of the sandboxes
-- ARGV  id:text  kept:int ms after which an unused stream expires  fields:map* how this side ended the stream
-- Returns  hash | missing: no such stream
-- Cost  O(c): c remaining chunks
-- Idempotent  the first call of a side counts
-- Kept  not proven: chunks are not written to a file or a replica
-- include: _transfer.lua
if not keep(id, kept) then return false end
redis.call('HSETNX', root .. ':transfer:' .. id, unpack(fields))
if state(id, 'received') then redis.call('UNLINK', root .. ':chunks:' .. id) end
return redis.call('HGETALL', root .. ':transfer:' .. id)
