-- take_chunk: read a chunk of a stream; those before it are received and removed.
-- KEYS  root of the sandboxes
-- ARGV  id:text  kept:int ms for which Redis keeps the stream without a call  number:int of the chunk, from 0
-- Returns  (chunk:bytes? transfer:hash): None of a chunk that is not sent yet
--          | missing: no such stream, or the chunk was removed
-- Cost  O(r): r chunks that are removed
-- Idempotent  by number: the chunk stays until a later one is read
-- Kept  not proven: neither the file of Redis nor its replicas get a chunk
-- include: _transfer.lua
if not keep(id, kept) then return false end
local first = tonumber(state(id, 'first'))
if number < first then return false end
if number > first then
  redis.call('LPOP', root .. ':chunks:' .. id, number - first)
  redis.call('HSET', root .. ':transfer:' .. id, 'first', number)
end
return {redis.call('LINDEX', root .. ':chunks:' .. id, 0), redis.call('HGETALL', root .. ':transfer:' .. id)}
