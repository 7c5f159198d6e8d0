-- take_chunk: read a chunk of a stream; those before it are received and removed.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id   2 ms that it is kept without a call   3 number of the chunk, from 0
-- Returns  {the chunk | false where it is not sent yet, how the sender ended the stream | false}
--          | false: there is no such stream, or the chunk was removed
-- Cost  O(r): r chunks that are removed
-- Idempotent  by number: the chunk stays until a later one is read
-- Kept  not proven: neither the file of Redis nor its replicas get a chunk
-- include: _transfer.lua
if not keep(ARGV[2]) then return false end
local number, first = tonumber(ARGV[3]), tonumber(state('first'))
if number < first then return false end
if number > first then
  redis.call('LPOP', root .. ':chunks:' .. id, number - first)
  redis.call('HSET', root .. ':transfer:' .. id, 'first', number)
end
return {redis.call('LINDEX', root .. ':chunks:' .. id, 0), state('sent')}
