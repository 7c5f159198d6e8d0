-- _checks: when conversations are compared with their agents next. Included where `root` is that of the sandboxes. An entry
-- of the due index is "CONVERSATION SANDBOX". Only a conversation with a place in its sandbox has one.
-- include: _clock.lua
-- Has a conversation compared in so many µs, unless it is due before.
local function check_in(sandbox, conversation, span)
  if not redis.call('ZSCORE', root .. ':places:' .. sandbox, conversation) then return end
  redis.call('ZADD', root .. ':checks', 'LT', string.format('%.0f', now + span), conversation .. ' ' .. sandbox)
end

-- Has every conversation of a sandbox compared at once.
local function check_all(sandbox)
  for _, conversation in ipairs(redis.call('ZRANGE', root .. ':places:' .. sandbox, 0, -1)) do
    check_in(sandbox, conversation, 0)
  end
end
