// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";

import {IEscrow} from "./IEscrow.sol";

/// @title Roles: filled at deployment, handed out afterwards only behind a delay in which anybody can see it coming.
/// @dev A role is taken away at once: a stolen key is stopped now, and its successor comes after the delay.
abstract contract EscrowRoles is IEscrow, AccessControlDefaultAdminRules, ReentrancyGuard {
    bytes32 public constant SETTLER = keccak256("SETTLER");
    bytes32 public constant PUBLISHER = keccak256("PUBLISHER");
    bytes32 public constant ARBITER = keccak256("ARBITER");
    bytes32 public constant SLASHER = keccak256("SLASHER");
    bytes32 public constant PAUSER = keccak256("PAUSER");
    uint64 public constant ROLE_DELAY_SECONDS = 48 hours;
    /// @notice For how long after its delay a proposed role can be granted: none lies ready for ever.
    uint64 public constant ROLE_WINDOW_SECONDS = 14 days;

    /// @notice From when on a proposed role can be granted; 0 where it is not proposed.
    mapping(bytes32 role => mapping(address account => uint64 activeAt)) public proposedRoles;

    constructor(Roles memory roles) {
        _appoint(SETTLER, roles.settler);
        _appoint(PUBLISHER, roles.publisher);
        _appoint(ARBITER, roles.arbiter);
        _appoint(SLASHER, roles.slasher);
        _appoint(PAUSER, roles.pauser);
    }

    /// @notice Announce that an account is to have a role; it can be granted after the delay.
    /// @dev Reverts with AccessControlUnauthorizedAccount unless the admin calls, NotAllowed for the zero account,
    /// AccessControlEnforcedDefaultAdminRules for the admin's own role, which has its own two steps. A repeat waits anew.
    function proposeRole(bytes32 role, address account) external nonReentrant onlyRole(DEFAULT_ADMIN_ROLE) {
        if (role == DEFAULT_ADMIN_ROLE) revert AccessControlEnforcedDefaultAdminRules();
        if (account == address(0)) revert NotAllowed();
        uint64 activeAt = uint64(block.timestamp) + ROLE_DELAY_SECONDS;
        proposedRoles[role][account] = activeAt;
        emit RoleProposed(role, account, activeAt);
    }

    /// @notice Drop a proposed role before it is granted.
    /// @dev Reverts with NotAllowed unless the admin, the arbiter or the pauser calls, and where it is not proposed.
    function vetoRole(bytes32 role, address account) external nonReentrant {
        if (
            !hasRole(DEFAULT_ADMIN_ROLE, msg.sender) && !hasRole(ARBITER, msg.sender) && !hasRole(PAUSER, msg.sender)
        ) revert NotAllowed();
        if (proposedRoles[role][account] == 0) revert NotAllowed();
        delete proposedRoles[role][account];
        emit RoleVetoed(role, account);
    }

    /// @notice Grant a role that was proposed, after its delay.
    /// @dev Reverts with AccessControlUnauthorizedAccount unless the admin calls, NotAllowed where it was not
    /// proposed, TooEarly within the delay, TooLate after the window, and as the base does for the admin's own role.
    function grantRole(bytes32 role, address account) public override {
        if (role != DEFAULT_ADMIN_ROLE && hasRole(DEFAULT_ADMIN_ROLE, msg.sender)) {
            uint64 activeAt = proposedRoles[role][account];
            if (activeAt == 0) revert NotAllowed();
            if (block.timestamp < activeAt) revert TooEarly();
            if (block.timestamp > activeAt + ROLE_WINDOW_SECONDS) revert TooLate();
            delete proposedRoles[role][account];
        }
        super.grantRole(role, account);
    }

    /// @dev A role may be left without a holder at deployment.
    function _appoint(bytes32 role, address account) private {
        if (account != address(0)) _grantRole(role, account);
    }
}
