-- When a session that holds messages expires; nothing once it has. Given an id, only if it was written under it.
local head = redis.call('ZRANGE', KEYS[1], '0', '0')[1]
local expires = head and string.match(head, '^%d+')
if not head or tonumber(expires) <= tonumber(ARGV[1]) or redis.call('ZCARD', KEYS[1]) < 2 then
    return false
end
if ARGV[2] and string.match(head, '^%d+ %d+ %d+ (.*)$') ~= ARGV[2] then
    return false
end
return expires
