// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

import {EscrowCredits} from "./EscrowCredits.sol";
import {EscrowFunds} from "./EscrowFunds.sol";
import {EscrowHolds} from "./EscrowHolds.sol";
import {EscrowRoles} from "./EscrowRoles.sol";
import {EscrowStakes} from "./EscrowStakes.sol";

/// @title Souk's escrow for one ERC-20: holds per job, credits, stakes.
/// @notice Nobody can move another's money except as it was signed or within the caps written here; what is owed can be
/// taken out while the contract is paused and when the marketplace is gone.
/// @dev Not upgradeable, takes no ether. Read in the order EscrowRoles, EscrowFunds, EscrowHolds, EscrowCredits, EscrowStakes.
contract GpuEscrow is EscrowHolds, EscrowCredits, EscrowStakes {
    constructor(
        Terms memory terms,
        Roles memory roles
    )
        EscrowRoles(roles)
        EscrowFunds(terms)
        EscrowHolds(terms)
        EscrowCredits(terms)
        EscrowStakes(terms)
        AccessControlDefaultAdminRules(ADMIN_DELAY_SECONDS, terms.admin)
        EIP712("Souk", "1")
    {}

    /// @notice Stop money from coming in and from being newly promised; nothing that goes out stops.
    /// @dev Reverts with EnforcedPause when it is paused.
    function pause() external nonReentrant onlyRole(PAUSER) {
        _pause();
    }

    /// @notice Let money in again.
    /// @dev Reverts with ExpectedPause when it is not paused.
    function unpause() external nonReentrant onlyRole(PAUSER) {
        _unpause();
    }

    /// @notice Send away what was given to the contract and belongs to nobody.
    /// @dev Reverts with UnexpectedBalance when less is there than is owed, ZeroAmount when nothing is over, NotAllowed
    /// for the zero address and this contract.
    function sweepSurplus(address to) external nonReentrant onlyRole(DEFAULT_ADMIN_ROLE) {
        uint256 balance = token.balanceOf(address(this));
        uint256 owed = totalLiabilities();
        if (balance < owed) revert UnexpectedBalance();
        if (balance == owed) revert ZeroAmount();
        emit SurplusSwept(to, balance - owed);
        _send(to, balance - owed);
    }
}
