-- _checks: when conversations are next compared with their agents.
-- `root` is that of the sandboxes. An entry of the due index is "CONVERSATION SANDBOX". Only a conversation with a
-- place in its sandbox has an entry.
-- include: _clock.lua
-- Makes a conversation due in span µs, unless it is due earlier.
local function check_in(sandbox, conversation, span)
  if not redis.call('ZSCORE', root .. ':places:' .. sandbox, conversation) then return end
  redis.call('ZADD', root .. ':checks', 'LT', string.format('%.0f', now + span), conversation .. ' ' .. sandbox)
end

-- Makes every conversation of a sandbox due at once.
local function check_all(sandbox)
  for _, conversation in ipairs(redis.call('ZRANGE', root .. ':places:' .. sandbox, 0, -1)) do
    check_in(sandbox, conversation, 0)
  end
end
