-- close_transfer: note how one side ended a stream, unless it has done so already. What was not received goes with it.
-- KEYS  root of the sandboxes
-- ARGV  id:text  kept:int ms for which Redis keeps the stream without a call  fields:map* how this side ended the stream
-- Returns  hash | missing: no such stream
-- Cost  O(c): c chunks that are left
-- Idempotent  the first call of a side counts
-- Kept  not proven: neither the file of Redis nor its replicas get a chunk
-- include: _transfer.lua
if not keep(id, kept) then return false end
redis.call('HSETNX', root .. ':transfer:' .. id, unpack(fields))
if state(id, 'received') then redis.call('UNLINK', root .. ':chunks:' .. id) end
return redis.call('HGETALL', root .. ':transfer:' .. id)
