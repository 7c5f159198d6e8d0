-- _title: tells the followers a new title, by an event that the log does not keep: agents have no event of a title.
-- value: JSON; iso: now, naive UTC text.
-- include: _log.lua
local function tell_title(value, iso)
  redis.call('PUBLISH', root .. ':signal', '{"id":"' .. next_id() .. '","timestamp":"' .. iso ..
    '","source":"environment","key":"title","value":' .. value .. ',"kind":"ConversationStateUpdateEvent"}')
end
