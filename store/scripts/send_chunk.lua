-- send_chunk: add the next chunk of a stream, if there is room for one more.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id   2 ms that it is kept without a call   3 number of the chunk, from 0   4 most chunks that may wait
--       5 the chunk
-- Returns  "sent" | "full" | {"closed", how the receiver ended it} | false: there is no such stream
-- Cost  O(1)
-- Idempotent  by number: a chunk that was sent is not sent again
-- Kept  not proven: neither the file of Redis nor its replicas get a chunk
-- include: _transfer.lua
if not keep(ARGV[2]) then return false end
local received = state('received')
if received then return {'closed', received} end
local number, following = tonumber(ARGV[3]), tonumber(state('next'))
if number < following then return 'sent' end
if following - state('first') >= tonumber(ARGV[4]) then return 'full' end
redis.call('RPUSH', root .. ':chunks:' .. id, ARGV[5])
redis.call('HSET', root .. ':transfer:' .. id, 'next', following + 1)
keep(ARGV[2])
return 'sent'
