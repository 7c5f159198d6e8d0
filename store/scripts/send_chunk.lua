-- send_chunk: append the next chunk of a stream, if there is room.
-- KEYS  root of the sandboxes
-- ARGV  id:text  kept:int ms after which an unused stream expires  number:int of the chunk, from 0
--       most:int queued chunks  chunk:bytes
-- Returns  "sent" | "full" | "closed"(transfer:hash): the receiver has ended it | missing: no such stream
-- Cost  O(1)
-- Idempotent  by number: a chunk that was sent is not sent again
-- Kept  not proven: chunks are not written to a file or a replica
-- include: _transfer.lua
if not keep(id, kept) then return false end
if state(id, 'received') then return {'closed', redis.call('HGETALL', root .. ':transfer:' .. id)} end
local following = tonumber(state(id, 'next'))
if number < following then return 'sent' end
if following - state(id, 'first') >= most then return 'full' end
redis.call('RPUSH', root .. ':chunks:' .. id, chunk)
redis.call('HSET', root .. ':transfer:' .. id, 'next', following + 1)
keep(id, kept)
return 'sent'
