-- settle_answer: forget an answer that the agent of a sandbox has heard.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of the answer
-- Returns  1 | 0: there is another answer, or none
-- Cost  O(1)
-- Idempotent  by the answer's id
local root = KEYS[1]
if string.find(redis.call('HGET', root, 'answer') or '', ARGV[1], 1, true) ~= 1 then return 0 end
return redis.call('HDEL', root, 'answer')
