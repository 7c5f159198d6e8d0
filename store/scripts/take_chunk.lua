-- take_chunk: read a chunk of a stream.
-- Earlier chunks are received, and are removed.
-- KEYS  root of the sandboxes
-- ARGV  id:text  kept:int ms after which an unused stream expires  number:int of the chunk, from 0
-- Returns  (chunk:bytes? transfer:hash): None for a chunk that is not sent yet
--          | missing: no such stream, or the chunk was removed
-- Cost  O(r): r removed chunks
-- Idempotent  by number: the chunk stays until a later one is read
-- Kept  not proven: chunks are not written to a file or a replica
-- include: _transfer.lua
if not keep(id, kept) then return false end
local first = tonumber(state(id, 'first'))
if number < first then return false end
if number > first then
  redis.call('LPOP', root .. ':chunks:' .. id, number - first)
  redis.call('HSET', root .. ':transfer:' .. id, 'first', number)
end
return {redis.call('LINDEX', root .. ':chunks:' .. id, 0), redis.call('HGETALL', root .. ':transfer:' .. id)}
