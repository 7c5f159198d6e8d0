-- drop_copy: delete the unfinished copy of a conversation; memory is freed in the background.
-- KEYS  root of the copy, conv:{id}:fork:FORK
-- ARGV  none
-- Returns  missing
-- Cost  O(k): k keys of the copy: one per (kind, source) pair and text chunk, plus five
-- Idempotent  a repeat finds nothing
-- Log  not guarded: a copy is never cold
-- Kept  not proven: nobody has seen the copy, and it expires
for _, pair in ipairs(redis.call('SMEMBERS', root .. ':pairs')) do redis.call('UNLINK', root .. ':at:' .. pair) end
for number = 0, tonumber(redis.call('HGET', root, 'text_chunk') or 0) do redis.call('UNLINK', root .. ':text:' .. number) end
redis.call('UNLINK', root, root .. ':log', root .. ':ids', root .. ':seqs', root .. ':pairs', root .. ':peaks')
return false
